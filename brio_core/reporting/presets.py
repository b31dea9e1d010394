"""The common budget or the authors' settings: what the validation subjects prefer."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from brio_core.reporting.blocks import blocks
from brio_core.reporting.checkpoints import choices, differences, with_error
from brio_core.reporting.results import in_paper_order, read_meta
from brio_core.reporting.tables import NOT_RUN, Cell, Table, percent

PRESETS = ("common", "published")
MEASURES = ("validation", "crossed", "auc")
DIFFERENCE = "crossed_difference"
NONE = "–"


def preset_rows(
    summaries: pd.DataFrame, folders: Sequence[str | Path], planned: Sequence[dict] = ()
) -> pd.DataFrame:
    """One row per cohort, protocol and method: AUC with both presets, and the better one.

    ``validation`` is the AUC of the selected checkpoints, ``crossed`` that of one validation site
    at the epoch that the others choose (:func:`~brio_core.reporting.checkpoints.crossed`), both
    averaged over folds and seeds. Presets differ in how many epochs there are to choose from, so
    crossed AUC decides, or the selected checkpoints' where nothing can be crossed; of equal ones
    the common budget is preferred. ``status`` tells a preset that is ``planned`` and was not run
    from one that does not exist.
    """
    both = {one["method"] for one in planned if one["variant"] != one["method"]}
    tested = summaries.drop_duplicates(["cohort", "protocol", "variant"])
    scores = tested.set_index(["cohort", "protocol", "variant"])["auc_mean"]
    found: dict[tuple, dict[str, list]] = {}
    for folder in folders:
        meta = read_meta(folder)
        preset = "common" if meta["variant"] == meta["method"] else "published"
        place = (meta["cohort"], meta["protocol"], meta["method"])
        found.setdefault(place, {}).setdefault(preset, []).extend(choices(folder))
    rows = []
    for (cohort, protocol, method), presets in found.items():
        folds = {preset: pd.DataFrame(presets[preset]) for preset in PRESETS if preset in presets}
        row = {"cohort": cohort, "protocol": protocol, "method": method, "variant": method}
        row |= folds["common" if "common" in folds else "published"].iloc[0][["group", "label"]]
        row |= {f"{measure}_{preset}": None for measure in MEASURES for preset in PRESETS}
        for preset, table in folds.items():
            row[f"validation_{preset}"] = table["validation_auc"].mean()
            row[f"crossed_{preset}"] = table["validation_crossed"].mean()
            row[f"auc_{preset}"] = scores[cohort, protocol, table["variant"].iloc[0]]
        row |= _compare(folds, row)
        row["status"] = NOT_RUN if method in both and len(folds) == 1 else "run"
        rows.append(row)
    return in_paper_order(pd.DataFrame(rows)).drop(columns="variant")


def _compare(folds: dict[str, pd.DataFrame], row: dict) -> dict:
    """Published minus common in the same folds of the same seeds, and which to prefer."""
    if len(folds) < len(PRESETS):
        return {DIFFERENCE: None, f"{DIFFERENCE}_se": None, "preferred": ""}
    found = differences(pd.concat(folds.values()), reference=row["method"])
    difference, error = found.iloc[0]
    better = difference
    if pd.isna(difference):
        better = row["validation_published"] - row["validation_common"]
    preferred = "published" if better > 0 else "common"
    return {DIFFERENCE: difference, f"{DIFFERENCE}_se": error, "preferred": preferred}


def preset_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What :func:`preset_rows` found, cohorts one below the other."""
    return Table(
        title=experiment.get("title", "Presets"),
        caption=experiment.get("caption", ""),
        columns=(
            "Method", "Common", "Published", "Common", "Published", "Difference", "Common",
            "Published", "Preferred by validation",
        ),
        spans=(
            ("", 1), ("Validation AUC, chosen", 2), ("Validation AUC, crossed", 3),
            ("Test AUC", 2), ("", 1),
        ),
        rows=blocks(rows, datasets, _cells),
        notes=(
            "AUC in %, as means over folds and seeds. Chosen: of the checkpoint that the "
            "validation sites chose, higher the more epochs there are to choose from. Crossed: of "
            "one validation site at the epoch that the other would have chosen; it says which to "
            "prefer (where nothing can be crossed, chosen does). Difference: published minus "
            "common, ± its standard error over folds as if no two had a validation site in "
            "common. Test: the mean over unseen sites; it decides nothing here. "
            f"{NONE}: the authors' settings are the common ones, or are not known.",
        ),
        section="training",
        left=(0, 8),
    )  # fmt: skip


def _cells(row: pd.Series) -> list[Cell]:
    def number(measure: str, preset: str) -> Cell:
        value = row[f"{measure}_{preset}"]
        text = row["status"] if pd.isna(value) and row["status"] == NOT_RUN else percent(value)
        return Cell(text, bold=measure == "crossed" and preset == row["preferred"])

    cells = {measure: [number(measure, preset) for preset in PRESETS] for measure in MEASURES}
    difference = Cell(with_error(row, DIFFERENCE))
    return [
        *cells["validation"], *cells["crossed"], difference, *cells["auc"],
        Cell(row["preferred"] or NONE),
    ]  # fmt: skip
