"""What validation says about variants, with and without the optimism of choosing by it."""

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, with_planned
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.given import Given
from brio_core.reporting.table import Cell, Table, number, percent, points
from brio_core.system.errors import BrioError

OUTPUT = {
    "files": ["summaries", "runs"],
    "page": "training",
    "options": ["reference", "first_epochs"],
}

EPOCHS = ("epochs", "selected_epoch")
SHARES = ("validation_auc", "validation_crossed", "validation_luck", "validation_last")
DIFFERENCE = "validation_difference"
OTHERS = {"variant": "others", "method": "others", "label": "Others alike", "group": "Together"}


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol and variant: means over the folds of all seeds.

    ``validation_difference`` is the cross-selected AUC minus that of the ``reference``, a variant,
    in the same folds of the same seeds, ``validation_difference_se`` its standard error over folds.
    With ``first_epochs``, in percent of the epochs, ``change_from_N`` is what would be added to the
    cross-selected AUC had checkpoints been eligible after so many epochs. Nothing is trained for
    it: a training that never stops early takes the same course whatever may be chosen of it.
    """
    reference = given.entry.get("reference", REFERENCE)
    changes = {f"change_from_{share}": share for share in given.entry.get("first_epochs", ())}
    found = (fold for folder in given.files["runs"] for fold in choices(folder, changes))
    columns = [*results.IDENTITY, "seed", "fold", *EPOCHS, "first_epoch", *SHARES, *changes]
    folds = pd.DataFrame(found, columns=columns)
    tested = results.read_variants(given.files["summaries"])["auc_mean"]
    rows = _means(_with_others(folds, changes) if changes else folds, changes)
    rows = rows.join(differences(folds, reference), on=results.PLACE).join(tested, on=results.PLACE)
    rows = results.in_paper_order(rows.reset_index())
    label = results.label_of(rows, reference)
    return with_planned(rows, given), _table(rows, given, label, changes)


def _means(folds: pd.DataFrame, changes: Collection[str]) -> pd.DataFrame:
    """Means over folds and seeds; changes are averaged within folds first, for their errors."""
    identity = list(results.IDENTITY)
    groups = folds.groupby(identity, sort=False)
    rows = groups["seed"].nunique().to_frame("seeds").join(groups[[*EPOCHS, *SHARES]].mean())
    if not changes:
        return rows
    by_fold = folds.groupby([*identity, "fold"])[list(changes)].mean().groupby(identity)
    rows = rows.assign(trainings=rows["seeds"], first_epoch=groups["first_epoch"].first())
    return rows.join(by_fold.mean()).join(by_fold.sem().add_suffix("_se"))


def _with_others(folds: pd.DataFrame, changes: Collection[str]) -> pd.DataFrame:
    """All folds, and once more together those of trainings alike that are not the reference's.

    Alike are trainings with the epochs and the first epoch that most have.
    """
    parts = [folds]
    judged = folds[folds["variant"] != REFERENCE].dropna(subset=list(changes))
    for _, part in judged.groupby(["cohort", "protocol"], sort=False):
        epochs, first = part[["epochs", "first_epoch"]].value_counts().index[0]
        alike = part[(part["epochs"] == epochs) & (part["first_epoch"] == first)]
        if alike["variant"].nunique() > 1:
            seeds = alike["variant"] + alike["seed"].astype(str)
            parts.append(alike.assign(seed=seeds, **OTHERS))
    return pd.concat(parts)


def differences(folds: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Cross-selected AUC of :func:`choices` against the reference, by :data:`results.PLACE`."""
    place = ["cohort", "protocol", "fold"]
    is_reference = folds["variant"] == reference
    own = folds[is_reference].rename(columns={"validation_crossed": "reference"})
    by_seed = own.set_index([*place, "seed"])["reference"]
    others = folds[~is_reference]
    # An exact fit has no seed: it is compared with all of the reference's.
    exact = others["selected_epoch"].isna()
    of_all_seeds = by_seed.groupby(place).mean()
    paired = pd.concat(
        [
            others[~exact].join(by_seed, on=by_seed.index.names, how="inner"),
            others[exact].join(of_all_seeds, on=place, how="inner"),
        ]
    )
    paired[DIFFERENCE] = paired["validation_crossed"] - paired["reference"]
    # Seeds first: folds are what another cohort would have others of.
    by_fold = paired.groupby([*results.PLACE, "fold"])[DIFFERENCE].mean()
    return by_fold.groupby(results.PLACE).agg(**{DIFFERENCE: "mean", f"{DIFFERENCE}_se": "sem"})


def choices(folder: str | Path, changes: dict[str, int] | None = None) -> Iterator[dict]:
    """What validation chose in every fold of a run.

    A method without epochs fits a path of penalties: it has a choice, but no course of training.
    ``changes`` are other first epochs, by name, in percent of the epochs.
    """
    meta = results.read_meta(folder)
    hyperparameters = meta.get("hyperparameters", {})
    trained = "epochs" in hyperparameters
    words = {key: meta[key] for key in (*results.IDENTITY, "seed")}
    for fold, curve in _curves(folder, meta):
        first = fold.get("first_epoch")
        auc, found = fold["validation_auc"], cross_selected(curve, first or 1)
        row = words | {"fold": fold["name"]} | dict(zip(SHARES, (auc, found, auc - found)))
        if trained:
            row |= {key: fold[key] for key in EPOCHS} | {"first_epoch": first}
            row["validation_last"] = curve["validation_auc"].iloc[-1]
        # One that may stop early would have stopped elsewhere.
        if trained and hyperparameters.get("patience") == 0:
            for name, share in (changes or {}).items():
                other = 1 + share * hyperparameters["epochs"] // 100
                row[name] = cross_selected(curve, other) - found
        yield row


def _curves(folder: str | Path, meta: dict) -> Iterator[tuple[dict, pd.DataFrame]]:
    """Every fold of a run, as ``meta`` has it, with its course of validation."""
    found = dict(iter(results.read_history(folder).groupby("fold")))
    for fold in meta["folds"]:
        curve = found.get(fold["name"])
        if curve is None or curve["epoch"].tolist() != list(range(1, fold["epochs"] + 1)):
            raise BrioError(
                f"{folder}/history.csv does not have the {fold['epochs']} epochs of fold "
                f"{fold['name']!r}; delete {folder} and run again"
            )
        yield fold, curve


def cross_selected(curve: pd.DataFrame, first_epoch: int) -> float:
    """AUC of each validation site at the epoch that the others choose, as a mean over sites."""
    groups = [name for name in curve if name.startswith("validation_auc_")]
    sites = curve.loc[curve["epoch"] >= first_epoch, groups].apply(pd.to_numeric, errors="coerce")
    sites = sites.dropna(axis="columns")
    if sites.shape[1] < 2:
        return np.nan
    chosen = {name: sites.drop(columns=name).mean(axis="columns").idxmax() for name in sites}
    return float(np.mean([sites.at[epoch, name] for name, epoch in chosen.items()]))


def _table(rows: pd.DataFrame, given: Given, reference: str, changes: dict[str, int]) -> Table:
    firsts = [f"Added after {share} %" for share in changes.values()]
    columns = (
        "Method", "Seeds", "Epochs trained", "Chosen epoch", "Validation AUC, chosen",
        "Validation AUC, cross-selected", f"Minus {reference}", "Optimism",
        "Validation AUC, last epoch", "Test AUC", *firsts,
    )  # fmt: skip

    def cells(own: pd.DataFrame) -> list[Cell]:
        row = own.iloc[0]
        shares = [percent(row[key]) for key in (*SHARES, "auc_mean")]
        added = [points(row[name], row[f"{name}_se"]) for name in (DIFFERENCE, *changes)]
        epochs = [number(row[key], ".1f") for key in EPOCHS]
        texts = [f"{row['seeds']:.0f}", *epochs, *shares[:2], added[0], *shares[2:], *added[1:]]
        return [Cell(text) for text in texts]

    notes = [
        "AUC in %, epochs and validation as means over folds and seeds. Chosen: the epoch (for "
        "linear models, the penalty) with the best mean AUC of the validation sites. "
        "Cross-selected: the AUC of one validation site at the epoch that the other chooses, as a "
        f"mean over both ways. Minus {reference}: of the cross-selected AUC, in the same folds and "
        "seeds (linear models have one for all), ± its standard error over folds as if no two had "
        "a validation site in common. Optimism: chosen minus cross-selected. Last epoch: no choice "
        "at all. Test AUC: as in the tables of results.",
        "One site chooses worse than two, so the cross-selected AUC is somewhat too low for the "
        "model that is kept; it is so for all methods. Where validation also chose "
        "hyperparameters, that choice is not cross-selected. –: a path of penalties has no epochs, "
        "and cross-selection needs two validation sites of both classes.",
    ]
    if changes:
        notes.append(
            "Added: what the cross-selected AUC would gain if checkpoints had been eligible after "
            "that share of the epochs; a training that may stop early would have stopped "
            "elsewhere. Others alike: every training but BRIO's own with the epochs and the first "
            "epoch that most have."
        )
    return given.table(columns, by_cohort(rows, given, columns, cells), *notes)
