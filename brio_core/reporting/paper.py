"""The paper's numbers and claims, which live in config/paper and nowhere else."""

from functools import cache
from pathlib import Path

import pandas as pd

from brio_core.reporting.results import read_table

FOLDER = Path(__file__).resolve().parents[2] / "config" / "paper"
WORDS = ("table", "cohort", "protocol", "variant", "method", "quantity", "unit")
CLAIM = (
    "section", "claim", "quantity", "source", "measure", "first", "second", "expected", "unit",
)  # fmt: skip


@cache
def paper_numbers() -> pd.DataFrame:
    """Every number of the paper's tables, one row each, in the order of the tables."""
    return read_table(FOLDER / "numbers.csv", WORDS, ("paper",))


@cache
def paper_claims() -> pd.DataFrame:
    """Every claim of the paper that has a quantity, one row each."""
    return read_table(FOLDER / "claims.csv", CLAIM)


def paper_table(table: str, cohort: str, variant: str = "") -> dict[str, float]:
    """The numbers of one table of the paper, by quantity."""
    rows = paper_numbers()
    own = (rows["table"] == table) & (rows["cohort"] == cohort) & (rows["variant"] == variant)
    return dict(zip(rows.loc[own, "quantity"], rows.loc[own, "paper"]))
