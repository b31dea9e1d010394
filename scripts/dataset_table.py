"""Statistics of the cohorts beside those of the paper's table of datasets."""

import argparse
from pathlib import Path

from brio_core import cli

PAPER = Path(__file__).resolve().parents[1] / "config" / "paper"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inclusion", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--participants", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--block-lengths", nargs="*", default=[], metavar="JSON")
    parser.add_argument("--paper", default=PAPER, metavar="DIR", help="the paper's tables")
    parser.add_argument(
        "--experiment", type=cli.json_argument, required=True, help="JSON with title and caption"
    )
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.reporting.cohorts import read_cohorts
    from brio_core.reporting.datasets import dataset_rows, dataset_table
    from brio_core.reporting.writing import write_table

    cohorts = read_cohorts(arguments.inclusion, arguments.participants)
    rows = dataset_rows(cohorts, arguments.block_lengths, arguments.paper, arguments.datasets)
    write_table(
        arguments.out_prefix, rows, dataset_table(rows, arguments.experiment, arguments.datasets)
    )


if __name__ == "__main__":
    cli.run(main)
