"""Regions that the qualified factors of BRIO pool from, averaged over folds and seeds."""

from collections.abc import Sequence

import pandas as pd

from brio_core.reporting.diagnostics import Diagnostics
from brio_core.reporting.results import cohort_title
from brio_core.reporting.tables import NOT_RUN, Cell, Row, Table

BRIO = "brio"
SHOWN = 5


def profile_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
    """One row per cohort and region, the highest score first, Eq. (app_dataset_roi_score).

    Factors of different models do not correspond, regions do: every model's profile is averaged
    in ROI space. ``times_uniform`` is 1 where qualification would not matter.
    """
    parts = []
    for one in found:
        scores = one.table("profiles")
        scores = scores[scores["variant"] == BRIO].groupby("roi")["score"]
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


def profile_table(rows: pd.DataFrame, experiment: dict, planned: dict, datasets: dict) -> Table:
    """The five regions with the highest score of every cohort."""
    lines = []
    for cohort in dict.fromkeys(cohort for cohort, _ in planned["pairs"]):
        lines.append(Row((Cell(cohort_title(datasets, cohort)),), heading=True))
        top = top_rois(rows, cohort)
        if top.empty:
            lines.append(Row((Cell(NOT_RUN), *[Cell("–")] * 3)))
        for rank, (_, row) in enumerate(top.iterrows(), start=1):
            place = "–" if pd.isna(row["x"]) else f"{row['x']:.0f}, {row['y']:.0f}, {row['z']:.0f}"
            score = Cell(f"{row['times_uniform']:.2f}", f"± {row['times_uniform_sd']:.2f}")
            lines.append(Row((Cell(f"{rank}"), Cell(row["name"]), Cell(place), score)))
    return Table(
        title=experiment["title"],
        caption=experiment["caption"],
        columns=("Rank", "Region", "Centre (mm)", "Score × regions"),
        rows=tuple(lines),
        notes=(
            "Qualification-weighted pooling profile of BRIO, averaged over folds and seeds in ROI "
            "space; 1 would be a region like any other, ± is the standard deviation over models.",
        ),
        section="diagnostics",
        left=(0, 1),
    )
