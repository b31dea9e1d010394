"""Each method against BRIO: intervals and signed-rank tests over sites, spread by sampling."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument("--sites", nargs="+", required=True, metavar="CSV")
    parser.add_argument(
        "--experiment", type=cli.json_argument, required=True, help="JSON with title and caption"
    )
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument(
        "--planned", type=cli.json_argument, help="JSON: settings and variants that belong there"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.reporting.comparison import comparison_rows, comparison_table, read_sites
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    rows = comparison_rows(read_summaries(arguments.summaries), read_sites(arguments.sites))
    table = comparison_table(rows, arguments.experiment, arguments.datasets, arguments.planned)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    cli.run(main)
