"""A table of results as CSV, Markdown and LaTeX, and as JSON for the overview page."""

import argparse
from pathlib import Path

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
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.errors import BrioError
    from brio_core.files import write_json, write_text
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.results_table import (
        PERMUTED,
        permuted_rows,
        permuted_table,
        results_table,
    )
    from brio_core.reporting.tables import latex, markdown

    rows = read_summaries(arguments.summaries)
    permuted = rows["protocol"].str.fullmatch(PERMUTED.pattern)
    if permuted.any() and not permuted.all():
        raise BrioError("--summaries mixes permuted and true labels; make a table of each")
    if permuted.any():
        rows = permuted_rows(rows)
        table = permuted_table(rows, arguments.experiment, arguments.datasets)
    else:
        table = results_table(rows, arguments.experiment, arguments.datasets)
    prefix = arguments.out_prefix
    # What a machine took is no result: the same predictions give the same table.
    rows = rows.drop(columns=["seconds_per_epoch", "peak_memory_gb", "device"], errors="ignore")
    write_text(f"{prefix}.csv", rows.to_csv(index=False))
    write_text(f"{prefix}.md", markdown(table))
    write_text(f"{prefix}.tex", latex(table, Path(prefix).name))
    write_json(f"{prefix}.json", table.as_dict())


if __name__ == "__main__":
    cli.run(main)
