"""How much of a validation AUC is the luck of choosing the best of many epochs or penalties."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.reporting.comparison import REFERENCE
from brio_core.reporting.results import in_paper_order, read_history, read_meta
from brio_core.reporting.results_table import blocks_of_rows
from brio_core.reporting.summary import IDENTITY
from brio_core.reporting.tables import Cell, Table, percent
from brio_core.system.errors import BrioError

EPOCHS = ("epochs", "selected_epoch")
SHARES = ("validation_auc", "validation_crossed", "validation_luck", "validation_last")
DIFFERENCE = "validation_difference"


def checkpoint_rows(
    summaries: pd.DataFrame, folders: Sequence[str | Path], reference: str = REFERENCE
) -> pd.DataFrame:
    """One row per cohort, protocol and variant: means over the folds of all seeds.

    ``validation_difference`` is the crossed AUC minus that of the ``reference``, a variant, in the
    same folds of the same seeds, ``validation_difference_se`` its standard error over folds.
    """
    identity = list(IDENTITY)
    tested = summaries.drop_duplicates(identity[:3])[[*identity[:3], "auc_mean"]]
    columns = [*identity, "seed", "fold", *EPOCHS, *SHARES]
    folds = pd.DataFrame((fold for folder in folders for fold in choices(folder)), columns=columns)
    groups = folds.groupby(identity, sort=False)
    rows = groups["seed"].nunique().to_frame("seeds").join(groups[[*EPOCHS, *SHARES]].mean())
    rows = rows.join(differences(folds, reference), on=identity[:3])
    return in_paper_order(rows.reset_index().merge(tested, how="left", on=identity[:3]))


def differences(folds: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Crossed AUC of :func:`choices` against the reference, by cohort, protocol and variant."""
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
    by_fold = paired.groupby(["cohort", "protocol", "variant", "fold"])[DIFFERENCE].mean()
    found = by_fold.groupby(["cohort", "protocol", "variant"])
    return found.agg(**{DIFFERENCE: "mean", f"{DIFFERENCE}_se": "sem"})


def choices(folder: str | Path) -> Iterator[dict]:
    """What validation chose in every fold of a run.

    A method without epochs fits a path of penalties: it has a choice, but no course of training.
    """
    meta = read_meta(folder)
    words = {key: meta[key] for key in (*IDENTITY, "seed")}
    for fold, curve in curves(folder, meta):
        auc, found = fold["validation_auc"], crossed(curve, fold.get("first_epoch") or 1)
        row = words | {"fold": fold["name"]} | dict(zip(SHARES, (auc, found, auc - found)))
        if "epochs" in meta.get("hyperparameters", {}):
            row |= {key: fold[key] for key in EPOCHS}
            row["validation_last"] = curve["validation_auc"].iloc[-1]
        yield row


def curves(folder: str | Path, meta: dict) -> Iterator[tuple[dict, pd.DataFrame]]:
    """Every fold of a run, as ``meta`` has it, with its course of validation."""
    trained = "epochs" in meta.get("hyperparameters", {})
    found = dict(iter(read_history(folder).groupby("fold")))
    for fold in meta["folds"]:
        curve = found.get(fold["name"])
        if curve is None or curve["epoch"].tolist() != list(range(1, fold["epochs"] + 1)):
            raise BrioError(
                f"{folder}/history.csv does not have the {fold['epochs']} epochs of fold "
                f"{fold['name']!r}; delete {folder} and run again"
            )
        if trained and "first_epoch" not in fold:
            raise BrioError(
                f"{folder}/meta.json does not say from which epoch on fold {fold['name']!r} could "
                f"choose: an older version wrote it; delete {folder} and run again"
            )
        yield fold, curve


def crossed(curve: pd.DataFrame, first_epoch: int) -> float:
    """AUC of each validation site at the epoch that the others choose, as a mean over sites."""
    groups = [name for name in curve if name.startswith("validation_auc_")]
    sites = curve.loc[curve["epoch"] >= first_epoch, groups].apply(pd.to_numeric, errors="coerce")
    sites = sites.dropna(axis="columns")
    if sites.shape[1] < 2:
        return np.nan
    chosen = {name: sites.drop(columns=name).mean(axis="columns").idxmax() for name in sites}
    return float(np.mean([sites.at[epoch, name] for name, epoch in chosen.items()]))


def checkpoint_table(rows: pd.DataFrame, experiment: dict, planned: dict, datasets: dict) -> Table:
    """What :func:`checkpoint_rows` found, cohorts one below the other."""
    minus = f"Minus {_label(rows, experiment.get('reference', REFERENCE))}"
    columns = (
        "Method", "Seeds", "Epochs trained", "Chosen epoch", "Validation AUC, chosen",
        "Validation AUC, crossed", minus, "Luck of choosing", "Validation AUC, last epoch",
        "Test AUC",
    )  # fmt: skip
    return Table(
        title=experiment.get("title", "How checkpoints were chosen"),
        caption=experiment.get("caption", ""),
        columns=columns,
        rows=tuple(blocks_of_rows(rows, _cells, len(columns) - 1, datasets, planned)),
        notes=(
            "AUC in %, epochs and validation as means over folds and seeds. Chosen: the epoch (for "
            "linear models, the penalty) with the best mean AUC of the validation sites. Crossed: "
            "the AUC of one validation site at the epoch that the other would have chosen, as a "
            f"mean over both ways; no site helps to choose what it judges. {minus}: of the "
            "crossed AUC, in the same folds and seeds (linear models have one for all), ± its "
            "standard error over folds as if no two had a validation site in common. Luck: chosen "
            "minus crossed. Last epoch: no choice at all. Test AUC: as in the tables of results.",
            "One site chooses worse than two, so crossed is somewhat too low for the model that "
            "is kept; it is so for all methods. Where validation also chose settings, that "
            "choice is not crossed. –: a path of penalties has no epochs, and without two "
            "validation sites of both classes nothing can be crossed.",
        ),
        section="training",
    )


def _label(rows: pd.DataFrame, variant: str) -> str:
    """What the tables call a variant; where it was not run, its name."""
    labels = rows.loc[rows["variant"] == variant, "label"]
    return variant.upper() if labels.empty else labels.iloc[0]


def _cells(part: pd.DataFrame) -> list[Cell]:
    row = part.iloc[0]
    epochs = ["–" if pd.isna(row[key]) else f"{row[key]:.1f}" for key in EPOCHS]
    shares = [percent(row[key]) for key in (*SHARES, "auc_mean")]
    texts = [f"{row['seeds']:.0f}", *epochs, *shares[:2], with_error(row, DIFFERENCE), *shares[2:]]
    return [Cell(text) for text in texts]


def with_error(row: pd.Series, name: str) -> str:
    """A difference in points and its standard error."""
    if pd.isna(row[name]):
        return "–"
    # Adding zero takes the sign from one that was rounded to zero.
    points = round(100 * row[name], 1) + 0.0
    return f"{points:+.1f} ± {percent(row[f'{name}_se'])}"
