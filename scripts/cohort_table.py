"""Subjects per site and class, frames and exclusions, as CSV, Markdown, LaTeX and JSON."""

from brio_core.reporting.options import table_options
from brio_core.system.cli import run


def main() -> None:
    arguments = table_options(__doc__, "inclusion", "participants").parse_args()

    import pandas as pd

    from brio_core.reporting.cohorts import cohort_table, read_cohorts, site_rows
    from brio_core.reporting.writing import write_table

    cohorts = read_cohorts(arguments.inclusion, arguments.participants)
    rows = pd.concat([site_rows(cohort) for cohort in cohorts], ignore_index=True)
    table = cohort_table(cohorts, rows, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
