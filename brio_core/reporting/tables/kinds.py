"""What the kind of connectivity changes: every method on each kind, at the same sites."""

import pandas as pd

from brio_core.connectivity import FISHER_Z
from brio_core.reporting.blocks import by_cohort, with_planned
from brio_core.reporting.given import Given
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.results import COSTS, read_hyperparameters, read_sites, read_summaries
from brio_core.reporting.table import Cell, Table, with_interval

OUTPUT = {"files": ["summaries", "sites", "runs"], "page": "training", "options": ["margin"]}

COLUMNS = ("Method", "Kind", "AUC", "Difference to Fisher z", *HEADS)
NAMES = {"fisher-z": "Fisher z", "logarithm": "logarithm", "partial": "partial correlation"}


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol and variant: a method on a ``kind`` of connectivity.

    Differences are to the same method on Fisher z.
    """
    hyperparameters = read_hyperparameters(given.files["runs"])
    kinds = {name: own.get("connectivity", FISHER_Z) for name, own in hyperparameters.items()}
    rows = read_summaries(given.files["summaries"]).drop(columns=list(COSTS))
    rows["kind"] = rows["variant"].map(kinds)
    plain = rows[rows["kind"] == FISHER_Z].drop_duplicates("method").set_index("method")["variant"]
    reference = rows["method"].map(plain).fillna("")
    sites = read_sites(given.files["sites"])
    rows, notes = compared(rows, sites, given, reference, "the same method on Fisher z")
    table = given.table(
        COLUMNS,
        by_cohort(rows, given, COLUMNS, _cells),
        "AUC in %: the mean over test sites, each averaged over seeds, with Student's 95 % "
        "interval.",
        *notes,
        left=(0, 1),
    )
    return with_planned(rows, given), table


def _cells(own: pd.DataFrame) -> list[Cell]:
    row = own.iloc[0]
    auc = with_interval(*(row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high")))
    return [Cell(NAMES.get(row["kind"], row["kind"])), auc, *difference_cells(row)]
