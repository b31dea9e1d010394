"""The paper's numbers, which live in config/paper/numbers.csv and nowhere else."""

from functools import cache
from pathlib import Path

import pandas as pd

from brio_core.reporting.results import read_table

FILE = Path(__file__).resolve().parents[2] / "config" / "paper" / "numbers.csv"
WORDS = ("table", "cohort", "protocol", "variant", "method", "quantity", "unit")


@cache
def paper_numbers() -> pd.DataFrame:
    """Every number of the paper's tables, one row each, in the order of the tables."""
    return read_table(FILE, WORDS, ("paper",))


def paper_table(table: str, cohort: str, variant: str = "") -> dict[str, float]:
    """The numbers of one table of the paper, by quantity."""
    rows = paper_numbers()
    own = (rows["table"] == table) & (rows["cohort"] == cohort) & (rows["variant"] == variant)
    return dict(zip(rows.loc[own, "quantity"], rows.loc[own, "paper"]))
