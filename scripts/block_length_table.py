"""BRIO with shorter and longer blocks: frames, seconds, AUC and ACC."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
    parser.add_argument("--block-lengths", nargs="+", required=True, metavar="JSON")
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

    from brio_core.reporting.block_lengths import block_length_rows, block_length_table
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    summaries = read_summaries(arguments.summaries)
    rows = block_length_rows(summaries, arguments.block_lengths, arguments.planned)
    table = block_length_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    cli.run(main)
