"""The long table of scores by site, and the means of sensitivity, specificity and calibration."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "sites", planned=False).parse_args()

    from brio_core.reporting.comparison import read_sites
    from brio_core.reporting.site_scores import site_scores_table
    from brio_core.reporting.writing import write_table

    sites = read_sites(arguments.sites)
    table = site_scores_table(sites, arguments.experiment, arguments.datasets, arguments.planned)
    write_table(arguments.out_prefix, sites, table)


if __name__ == "__main__":
    run(main)
