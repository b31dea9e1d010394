"""From which epoch on may a checkpoint be chosen? Asked of stored courses of validation.

A training that never stops early takes the same course whatever may be chosen of it. So validation
can judge other first epochs without any training; what unseen sites would say is not known.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from brio_core.reporting.checkpoints import crossed, curves, with_error
from brio_core.reporting.comparison import REFERENCE
from brio_core.reporting.results import in_paper_order, read_meta
from brio_core.reporting.results_table import blocks_of_rows
from brio_core.reporting.summary import IDENTITY
from brio_core.reporting.tables import Cell, Table, percent

# Percent of the epochs that pass before the first that may be chosen.
PASSED = (0, 15, 30, 50, 75)
COLUMNS = tuple(f"change_from_{passed}" for passed in PASSED)
WHOLE = ("trainings", "epochs", "first_epoch")
OTHERS = {"variant": "others", "method": "others", "label": "Others alike", "group": "Together"}


def first_epoch_rows(folders: Sequence[str | Path]) -> pd.DataFrame:
    """One row per cohort, protocol and variant, and one for all alike but BRIO."""
    columns = [*IDENTITY, "seed", "fold", "epochs", "first_epoch", "validation_crossed", *COLUMNS]
    found = [fold for folder in folders for fold in _folds(folder)]
    folds = pd.DataFrame(found, columns=columns)
    rows = [
        dict(zip(IDENTITY, identity)) | _summary(part)
        for identity, part in folds.groupby(list(IDENTITY), sort=False)
    ]
    judged = folds[folds["variant"] != REFERENCE].dropna(subset=COLUMNS)
    together = [
        {"cohort": cohort, "protocol": protocol} | OTHERS | _summary(part)
        for (cohort, protocol), all_of_it in judged.groupby(["cohort", "protocol"], sort=False)
        if (part := _alike(all_of_it))["variant"].nunique() > 1
    ]
    errors = [f"{name}_se" for name in COLUMNS]
    columns = [*IDENTITY, *WHOLE, "validation_crossed", *COLUMNS, *errors]
    table = pd.DataFrame(rows + together, columns=columns)
    return in_paper_order(table.astype(dict.fromkeys(WHOLE, "Int64")))


def _alike(folds: pd.DataFrame) -> pd.DataFrame:
    """Trainings with the epochs and the first epoch that most have; others mean something else."""
    epochs, first = folds[["epochs", "first_epoch"]].value_counts().index[0]
    return folds[(folds["epochs"] == epochs) & (folds["first_epoch"] == first)]


def _folds(folder: str | Path) -> Iterator[dict]:
    """Every fold of a run that was trained in epochs."""
    meta = read_meta(folder)
    settings = meta.get("hyperparameters", {})
    if "epochs" not in settings:
        return
    words = {key: meta[key] for key in (*IDENTITY, "seed")} | {"epochs": settings["epochs"]}
    for fold, curve in curves(folder, meta):
        own = crossed(curve, fold["first_epoch"])
        row = words | {"fold": fold["name"], "first_epoch": fold["first_epoch"]}
        row["validation_crossed"] = own
        if settings["patience"] == 0:
            for name, passed in zip(COLUMNS, PASSED):
                first = 1 + passed * settings["epochs"] // 100
                row[name] = crossed(curve, first) - own
        yield row


def _summary(folds: pd.DataFrame) -> dict:
    """Means over the trainings of every fold, then over folds, with standard errors over folds."""
    row = {"trainings": len(folds[["variant", "seed"]].drop_duplicates())}
    for name in ("epochs", "first_epoch"):
        row[name] = folds[name].iloc[0]
    row["validation_crossed"] = folds["validation_crossed"].mean()
    for name in COLUMNS:
        by_fold = folds.groupby("fold")[name].mean()
        row |= {name: by_fold.mean(), f"{name}_se": by_fold.sem()}
    return row


def first_epoch_table(rows: pd.DataFrame, experiment: dict, planned: dict, datasets: dict) -> Table:
    """What :func:`first_epoch_rows` found, cohorts one below the other."""
    shares = ["from epoch 1", *(f"after {passed} %" for passed in PASSED[1:])]
    columns = ("Method", "Trainings", "Epochs", "First", "Validation AUC, crossed", *shares)
    return Table(
        title=experiment.get("title", "From which epoch on a checkpoint may be chosen"),
        caption=experiment.get("caption", ""),
        columns=columns,
        rows=tuple(blocks_of_rows(rows, _cells, len(columns) - 1, datasets, planned)),
        notes=(
            "Crossed: the AUC (in %) of one validation site at the epoch that the other would have "
            "chosen, with the first eligible epoch as it was in training (First). Then what would "
            "be added to it with checkpoints from another epoch on, after so many percent of the "
            "epochs: differences in the same folds and seeds, ± their standard error over folds as "
            "if no two had a validation site in common. Others alike: every training but BRIO's "
            "own with the epochs and the first epoch that most have. –: one that may stop early "
            "would have stopped elsewhere.",
        ),
        section="training",
    )


def _cells(part: pd.DataFrame) -> list[Cell]:
    row = part.iloc[0]
    texts = [str(row[name]) for name in WHOLE]
    texts.append(percent(row["validation_crossed"]))
    return [Cell(text) for text in (*texts, *(with_error(row, name) for name in COLUMNS))]
