"""A table of results as CSV, Markdown and LaTeX, and as JSON for the overview page."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--summaries", nargs="+", required=True, metavar="CSV")
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

    from brio_core.errors import BrioError
    from brio_core.reporting.results import COSTS, read_summaries
    from brio_core.reporting.results_table import (
        PERMUTED,
        permuted_rows,
        permuted_table,
        results_table,
        with_planned,
    )
    from brio_core.reporting.writing import write_table

    rows = read_summaries(arguments.summaries)
    permuted = rows["protocol"].str.fullmatch(PERMUTED.pattern)
    if permuted.any() and not permuted.all():
        raise BrioError("--summaries mixes permuted and true labels; make a table of each")
    if permuted.any():
        rows = permuted_rows(rows)
        table = permuted_table(rows, arguments.experiment, arguments.datasets)
    else:
        table = results_table(rows, arguments.experiment, arguments.datasets, arguments.planned)
    # The same predictions give the same table, wherever they were made.
    rows = rows.drop(columns=list(COSTS), errors="ignore")
    if not permuted.any():
        rows = with_planned(rows, arguments.planned)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    cli.run(main)
