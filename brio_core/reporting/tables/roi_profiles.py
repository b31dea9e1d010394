"""Regions that the qualified factors of BRIO pool from, averaged over folds and seeds."""

from collections.abc import Sequence

import pandas as pd

from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.diagnostics import Diagnostics, read_diagnostics
from brio_core.reporting.given import Given
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import NONE, NOT_RUN, Cell, Row, Table, heading

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Regions behind the qualified factors",
    "caption": "The five regions with the highest qualification-weighted pooling score.",
}

SHOWN = 5


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """All regions in the CSV, the first five of every cohort in print."""
    rows = profile_rows(read_diagnostics(given.files["diagnostics"]))
    lines = []
    for cohort in dict.fromkeys(cohort for cohort, _ in given.planned["pairs"]):
        title = cohort_title(given.datasets, cohort)
        top = top_rois(rows, cohort)
        lines.append(heading(f"{title}: {NOT_RUN}" if top.empty else title))
        for rank, (_, row) in enumerate(top.iterrows(), start=1):
            place = NONE if pd.isna(row["x"]) else f"{row['x']:.0f}, {row['y']:.0f}, {row['z']:.0f}"
            score = Cell(f"{row['times_uniform']:.2f}", f"± {row['times_uniform_sd']:.2f}")
            lines.append(Row((Cell(f"{rank}"), Cell(row["name"]), Cell(place), score)))
    table = given.table(
        ("Rank", "Region", "Centre (mm)", "Score × regions"),
        lines,
        "Qualification-weighted pooling profile of BRIO, averaged over folds and seeds in ROI "
        "space; 1 would be a region like any other, ± is the standard deviation over models.",
        left=(0, 1),
    )
    return rows, table


def profile_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
    """One row per cohort and region, the highest score first, Eq. (app_dataset_roi_score).

    Factors of different models do not correspond, regions do: every model's profile is averaged
    in ROI space. ``times_uniform`` is 1 where qualification would not matter.
    """
    parts = []
    for one in found:
        scores = one.table("profiles")
        scores = scores[scores["variant"] == REFERENCE].groupby("roi")["score"]
        table = pd.DataFrame({"score": scores.mean(), "score_sd": scores.std()})
        table = one.rois.set_index("roi").join(table).reset_index()
        table.insert(0, "cohort", one.cohort)
        table["times_uniform"] = table["score"] * len(table)
        table["times_uniform_sd"] = table["score_sd"] * len(table)
        table["models"] = scores.size().max()
        parts.append(table.sort_values("score", ascending=False, kind="stable"))
    return pd.concat(parts, ignore_index=True)


def top_rois(rows: pd.DataFrame, cohort: str) -> pd.DataFrame:
    """The regions that are named."""
    return rows[rows["cohort"] == cohort].head(SHOWN)
