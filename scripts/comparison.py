"""Each method against BRIO: intervals and signed-rank tests over sites, spread by sampling."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "summaries", "sites", planned=False).parse_args()

    from brio_core.reporting.comparison import comparison_rows, comparison_table, read_sites
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    rows = comparison_rows(read_summaries(arguments.summaries), read_sites(arguments.sites))
    table = comparison_table(rows, arguments.experiment, arguments.datasets, arguments.planned)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
