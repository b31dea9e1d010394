"""A table in its four formats."""

from pathlib import Path

import pandas as pd

from brio_core.reporting.tables import Table, latex, markdown
from brio_core.system.files import write_json, write_text


def write_table(prefix: str | Path, rows: pd.DataFrame, table: Table) -> None:
    """``rows`` in full precision as CSV, ``table`` as Markdown, LaTeX and JSON for the page."""
    write_text(f"{prefix}.csv", rows.to_csv(index=False))
    write_text(f"{prefix}.md", markdown(table))
    write_text(f"{prefix}.tex", latex(table, Path(prefix).name))
    write_json(f"{prefix}.json", table.as_dict())
