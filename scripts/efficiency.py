"""What training took per method, measured by the training jobs, beside the paper's figures."""

import argparse
from pathlib import Path

from brio_core import cli

PAPER = Path(__file__).resolve().parents[1] / "config" / "paper" / "table_efficiency.csv"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument("--paper", default=PAPER, metavar="CSV", help="the paper's figures")
    parser.add_argument(
        "--experiment", type=cli.json_argument, required=True, help="JSON with title and caption"
    )
    parser.add_argument(
        "--planned", type=cli.json_argument, required=True,
        help="JSON: settings and variants that belong there",
    )  # fmt: skip
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.reporting.efficiency import efficiency_rows, efficiency_table
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    summaries = read_summaries(arguments.summaries)
    rows = efficiency_rows(summaries, arguments.planned, arguments.paper)
    table = efficiency_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    cli.run(main)
