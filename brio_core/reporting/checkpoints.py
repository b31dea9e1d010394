"""How much of a validation AUC is the luck of choosing the best of many epochs."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from brio_core.errors import BrioError
from brio_core.reporting.results import in_paper_order, read_history, read_meta
from brio_core.reporting.results_table import blocks_of_rows
from brio_core.reporting.summary import IDENTITY
from brio_core.reporting.tables import Cell, Table, percent

# So many epochs before and after the chosen one are compared with it.
AROUND = 5
EPOCHS = ("epochs", "selected_epoch")
SHARES = ("validation_auc", "validation_around", "validation_luck")


def checkpoint_rows(summaries: pd.DataFrame, folders: Sequence[str | Path]) -> pd.DataFrame:
    """One row per cohort, protocol and variant: means over the folds of all seeds."""
    identity = list(IDENTITY)
    tested = summaries.drop_duplicates(identity[:3])[[*identity[:3], "auc_mean"]]
    folds = pd.DataFrame([fold for folder in folders for fold in _folds(folder)])
    groups = folds.reindex(columns=[*identity, "seed", *EPOCHS, *SHARES]).groupby(
        identity, sort=False
    )
    rows = groups["seed"].nunique().to_frame("seeds").join(groups[[*EPOCHS, *SHARES]].mean())
    return in_paper_order(rows.reset_index().merge(tested, how="left", on=identity[:3]))


def _folds(folder: str | Path) -> Iterator[dict]:
    """What validation chose in every fold of a run.

    A method without epochs fits a path of penalties, whose points are no repeats of each other.
    """
    meta = read_meta(folder)
    settings = meta.get("settings", {})
    words = {key: meta[key] for key in (*IDENTITY, "seed")}
    trained = "epochs" in settings
    curves = dict(iter(read_history(folder).groupby("fold"))) if trained else {}
    for fold in meta["folds"]:
        auc = fold["validation_auc"]
        if not trained:
            yield words | {"validation_auc": auc}
            continue
        curve = curves.get(fold["name"])
        if curve is None or curve["epoch"].tolist() != list(range(1, fold["epochs"] + 1)):
            raise BrioError(
                f"{folder}/history.csv does not have the {fold['epochs']} epochs of fold "
                f"{fold['name']!r}; delete {folder} and run again"
            )
        if "first_epoch" not in fold:
            raise BrioError(
                f"{folder}/meta.json does not say from which epoch on fold {fold['name']!r} could "
                f"choose: an older version wrote it; delete {folder} and run again"
            )
        first = fold["first_epoch"]
        chosen, epoch = fold["selected_epoch"], curve["epoch"]
        near = epoch.between(max(first, chosen - AROUND), chosen + AROUND) & (epoch != chosen)
        around = curve["validation_auc"][near].mean()
        values = (auc, around, auc - around)
        yield words | {key: fold[key] for key in EPOCHS} | dict(zip(SHARES, values))


def checkpoint_table(rows: pd.DataFrame, experiment: dict, planned: dict, datasets: dict) -> Table:
    """What :func:`checkpoint_rows` found, cohorts one below the other."""
    columns = (
        "Method", "Epochs trained", "Chosen epoch", "Validation AUC, chosen",
        "Validation AUC, around", "Luck of choosing", "Test AUC",
    )  # fmt: skip
    return Table(
        title=experiment.get("title", "How checkpoints were chosen"),
        caption=experiment.get("caption", ""),
        columns=columns,
        rows=tuple(blocks_of_rows(rows, _cells, len(columns) - 1, datasets, planned)),
        notes=(
            "AUC in %, epochs and validation as means over folds and seeds. Chosen: the epoch with "
            f"the best validation AUC. Around: the mean of up to {AROUND} epochs before and "
            f"{AROUND} after it, without itself and without epochs that could not be chosen. Luck: "
            "chosen minus around. Test AUC: as in the tables of results. Where validation also "
            "chose settings, the luck of that choice comes on top. –: fitted along a path of "
            "penalties, without epochs.",
            "Neighbouring epochs share slow ups and downs: luck that lasts for many epochs is not "
            "in the difference, and a course that truly rises or falls around the choice is.",
        ),
        section="training",
    )


def _cells(part: pd.DataFrame) -> list[Cell]:
    row = part.iloc[0]
    epochs = ["–" if pd.isna(row[key]) else f"{row[key]:.1f}" for key in EPOCHS]
    return [Cell(text) for text in (*epochs, *(percent(row[key]) for key in (*SHARES, "auc_mean")))]
