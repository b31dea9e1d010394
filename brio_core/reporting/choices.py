"""What validation chose in every fold of runs, and what it says about variants."""

import math
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from brio_core.evaluation.site_statistics import mean_and_error, nested_choice, preferred
from brio_core.reporting import results
from brio_core.system.errors import BrioError

EPOCHS = ("epochs", "selected_epoch")
CROSSED = "validation_crossed"
SHARES = ("validation_auc", CROSSED, "validation_luck", "validation_last")
DIFFERENCE = "validation_difference"
TRAINING = ("seed", "ring")


def choices(folder: str | Path) -> Iterator[dict]:
    """What validation chose in every fold of a run.

    A method without epochs fits a path of penalties: it has a choice, but no course of training.
    ``parts`` has the cross-selected AUC by part that validates; ``validated`` are all these parts.
    """
    meta = results.read_meta(folder)
    trained = "epochs" in meta.get("hyperparameters", {})
    words = {key: meta[key] for key in (*results.IDENTITY, "seed")} | {
        "ring": results.ring_of(meta)
    }
    for fold, curve in _curves(folder, meta):
        first = fold.get("first_epoch")
        auc, parts = fold["validation_auc"], cross_selected(curve, first or 1)
        found = parts.mean()
        row = words | {"fold": fold["name"]} | dict(zip(SHARES, (auc, found, auc - found)))
        if trained:
            row |= {key: fold[key] for key in EPOCHS}
            row["validation_last"] = curve["validation_auc"].iloc[-1]
        # Runs of earlier versions do not tell which sites validate; then all parts differ.
        groups = fold.get("validation", [])
        names = {f"validation_auc_{n}": " and ".join(one) for n, one in enumerate(groups, start=1)}
        named = {column: names.get(column, f"{fold['name']}, {column}") for column in parts.index}
        row["parts"] = parts.rename(named).to_dict()
        row["validated"] = {one for group in groups for one in group}
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


def cross_selected(curve: pd.DataFrame, first_epoch: int) -> pd.Series:
    """AUC of each validation site at the epoch that the others choose; none with a single site."""
    columns = [name for name in curve if name.startswith("validation_auc_")]
    sites = curve.loc[curve["epoch"] >= first_epoch, columns].apply(pd.to_numeric, errors="coerce")
    sites = sites.dropna(axis="columns")
    if sites.shape[1] < 2:
        return pd.Series(dtype=float)
    chosen = {name: sites.drop(columns=name).mean(axis="columns").idxmax() for name in sites}
    return pd.Series({name: sites.at[epoch, name] for name, epoch in chosen.items()})


def differences(folds: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Cross-selected AUC of :func:`choices` against the reference, by :data:`results.PLACE`.

    Of the same validation sites in the same folds, also where one of both has more of them. With
    the mean comes its standard error over folds and parts; seeds are averaged first, because folds
    are what another cohort would have others of.
    """
    place = ["cohort", "protocol", "fold", "part", "ring"]
    cells = [
        {**row, "part": part, "value": value}
        for row in folds.to_dict("records")
        for part, value in row["parts"].items()
    ]
    cells = pd.DataFrame(cells, columns=[*folds, "part", "value"])
    is_reference = cells["variant"] == reference
    by_seed = cells[is_reference].set_index([*place, "seed"])["value"].rename("reference")
    others = cells[~is_reference]
    # An exact fit has no seed: it is compared with all of the reference's.
    exact = others["selected_epoch"].isna()
    of_all_seeds = by_seed.groupby(place).mean()
    paired = pd.concat(
        [
            others[~exact].join(by_seed, on=by_seed.index.names, how="inner"),
            others[exact].join(of_all_seeds, on=place, how="inner"),
        ]
    )
    paired["value"] -= paired["reference"]
    keys = [*results.PLACE, "fold", "part"]
    means = paired.groupby(keys, sort=False)["value"].mean().reset_index()
    found = {key: mean_and_error(one) for key, one in means.groupby(results.PLACE, sort=False)}
    compared = folds.loc[folds["variant"] != reference, results.PLACE].drop_duplicates()
    index = pd.MultiIndex.from_frame(compared)
    rows = [found.get(key, (math.nan,) * 2) for key in index]
    return pd.DataFrame(rows, index, [DIFFERENCE, f"{DIFFERENCE}_se"], float)


def chosen_variants(folds: pd.DataFrame) -> tuple[str, dict[str, str]]:
    """Of several variants the one that all folds prefer, and the nested choice of every fold.

    By the cross-selected AUC, or by that of the chosen checkpoints where a fold has none.
    """
    place = ["fold", "ring"]
    for measure in (CROSSED, "validation_auc"):
        scores = folds.groupby([*place, "variant"], sort=False)[measure].mean().unstack()
        scores = scores[list(dict.fromkeys(folds["variant"]))]
        if scores.notna().all(axis=None):
            break
    scores = scores.dropna()
    sets = folds.groupby(place)["validated"].agg(lambda found: set().union(*found))
    return preferred(scores), nested_choice(scores, sets.to_dict())
