"""Every method with its one setting and with several to choose from."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    options = experiment_options(__doc__, "summaries", "sites", "runs", planned=True)
    arguments = options.parse_args()

    from brio_core.reporting.comparison import read_sites
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.searches import search_rows, search_table
    from brio_core.reporting.writing import write_table

    summaries, sites = read_summaries(arguments.summaries), read_sites(arguments.sites)
    rows = search_rows(summaries, sites, arguments.runs, arguments.planned["variants"])
    table = search_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
