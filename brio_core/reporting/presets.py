"""The common budget or the authors' settings: what the validation subjects prefer."""

from collections.abc import Sequence
from statistics import fmean

import pandas as pd

from brio_core.reporting.blocks import blocks
from brio_core.reporting.results import in_paper_order
from brio_core.reporting.tables import NOT_RUN, Cell, Table, percent

PRESETS = ("common", "published")
NONE = "–"


def preset_rows(
    summaries: pd.DataFrame, metas: Sequence[dict], planned: Sequence[dict] = ()
) -> pd.DataFrame:
    """One row per cohort, protocol and method: AUC with both presets, and the better one.

    The validation AUC is that of the selected checkpoint, averaged over folds and seeds; of equal
    ones the common budget is preferred. ``status`` tells a preset that is ``planned`` and was not
    run from one that does not exist.
    """
    both = {one["method"] for one in planned if one["variant"] != one["method"]}
    scores = {
        (row["cohort"], row["protocol"], row["variant"]): row["auc_mean"]
        for _, row in summaries.iterrows()
    }
    found: dict[tuple, dict] = {}
    for meta in metas:
        key = (meta["cohort"], meta["protocol"], meta["method"])
        preset = "common" if meta["variant"] == meta["method"] else "published"
        row = found.setdefault(key, {preset: [] for preset in PRESETS})
        row |= {"group": meta["group"], f"{preset}_label": meta["label"]}
        row[preset] += [fold["validation_auc"] for fold in meta["folds"]]
        row[f"auc_{preset}"] = scores[(*key[:2], meta["variant"])]
    rows = []
    for (cohort, protocol, method), row in found.items():
        validation = {preset: fmean(row[preset]) for preset in PRESETS if row[preset]}
        rows.append(
            {
                "cohort": cohort,
                "protocol": protocol,
                "method": method,
                "variant": method,
                "group": row["group"],
                "label": row.get("common_label", row.get("published_label")),
                **{f"validation_{preset}": validation.get(preset) for preset in PRESETS},
                **{f"auc_{preset}": row.get(f"auc_{preset}") for preset in PRESETS},
                "preferred": max(validation, key=validation.get) if len(validation) > 1 else "",
                "status": NOT_RUN if method in both and len(validation) == 1 else "run",
            }
        )
    return in_paper_order(pd.DataFrame(rows)).drop(columns="variant")


def preset_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What :func:`preset_rows` found, cohorts one below the other."""
    return Table(
        title=experiment.get("title", "Presets"),
        caption=experiment.get("caption", ""),
        columns=(
            "Method", "Common", "Published", "Common", "Published", "Preferred by validation"
        ),
        spans=(("", 1), ("Validation AUC", 2), ("Test AUC", 2), ("", 1)),
        rows=blocks(rows, datasets, _cells),
        notes=(
            "Validation: the mean over folds of the checkpoint that the validation subjects chose, "
            "so a little too high. Test: the mean over unseen sites; it decides nothing here. "
            f"{NONE}: the authors' settings are the common ones, or are not known.",
        ),
        section="training",
        left=(0, 5),
    )  # fmt: skip


def _cells(row: pd.Series) -> list[Cell]:
    numbers = []
    for what in ("validation", "auc"):
        for preset in PRESETS:
            value = row[f"{what}_{preset}"]
            preferred = what == "validation" and preset == row["preferred"]
            text = row["status"] if pd.isna(value) and row["status"] == NOT_RUN else percent(value)
            numbers.append(Cell(text, bold=preferred))
    return [*numbers, Cell(row["preferred"] or NONE)]
