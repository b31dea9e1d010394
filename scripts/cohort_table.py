"""Subjects per site and class, frames and exclusions, as CSV, Markdown, LaTeX and JSON."""

import argparse
from pathlib import Path

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inclusion", nargs="+", required=True, metavar="TSV")
    parser.add_argument("--participants", nargs="+", required=True, metavar="TSV")
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    import pandas as pd

    from brio_core.files import write_json, write_text
    from brio_core.reporting.cohorts import cohort_table, read_cohorts, site_rows
    from brio_core.reporting.tables import latex, markdown

    cohorts = read_cohorts(arguments.inclusion, arguments.participants)
    rows = pd.concat([site_rows(cohort) for cohort in cohorts], ignore_index=True)
    table = cohort_table(cohorts, rows, arguments.datasets)
    prefix = arguments.out_prefix
    write_text(f"{prefix}.csv", rows.to_csv(index=False))
    write_text(f"{prefix}.md", markdown(table))
    write_text(f"{prefix}.tex", latex(table, Path(prefix).name))
    write_json(f"{prefix}.json", table.as_dict())


if __name__ == "__main__":
    cli.run(main)
