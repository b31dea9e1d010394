"""A table of results as CSV, Markdown and LaTeX, and as JSON for the overview page."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "summaries", planned=False).parse_args()

    from brio_core.reporting.results import COSTS, read_summaries
    from brio_core.reporting.results_table import (
        PERMUTED,
        permuted_rows,
        permuted_table,
        results_table,
        with_planned,
    )
    from brio_core.reporting.writing import write_table
    from brio_core.system.errors import BrioError

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
    run(main)
