"""How many sites are needed: training on few sites, or on as many subjects of all sites."""

import math
from collections.abc import Sequence

import pandas as pd

from brio_core.cohorts.subsets import DRAWN
from brio_core.evaluation.confounds import auc_over_sites
from brio_core.evaluation.intervals import interval_over_sites
from brio_core.reporting.given import Given
from brio_core.reporting.results import (
    IDENTITY,
    cohort_title,
    in_paper_order,
    read_meta,
    read_sites,
)
from brio_core.reporting.table import NOT_RUN, Cell, Row, Table, heading, number, with_interval
from brio_core.system.errors import BrioError

OUTPUT = {"files": ["sites", "runs"], "page": "training"}

ALL = "all"
ARMS = {"sites": "Few sites", "subjects": "All sites, fewer subjects"}
WORDS = [key for key in IDENTITY if key != "protocol"]
SIZES = ("training_sites", "training_subjects")
DIFFERENCE = ("difference", "difference_low", "difference_high")
COLUMNS = (
    "Training sites", "Training subjects", "AUC, these sites", "AUC, as many of all sites",
    "Difference",
)  # fmt: skip
EXPLAINED = (
    "AUC in %, the mean over test sites, each averaged over draws and seeds, with Student's 95 % "
    "interval over sites. Draws of one number contain those of the smaller ones. As many of all "
    "sites: the same number of subjects of each class, in equal shares of every site. Test and "
    "validation sites are those of the whole split. A method that also trains on validation sites "
    "draws from training and validation sites."
)


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, variant, number of sites and arm; the last has all sites."""
    rows = curve_rows(given.files["sites"], given.files["runs"])
    lines = []
    for (cohort, _), own in rows.groupby(["cohort", "variant"], sort=False):
        title = cohort_title(given.datasets, cohort)
        lines.append(heading(f"{title}, {own['label'].iloc[0]}"))
        lines += [_line(point) for _, point in own.groupby("sites", sort=False)]
    counts = sorted({int(count) for count in rows["draws"]} - {0})
    draws = " or ".join(map(str, counts)) or "no"
    table = given.table(COLUMNS, tuple(lines), EXPLAINED, f"Draws of each number: {draws}.")
    return rows, table


def _line(point: pd.DataFrame) -> Row:
    first, by_arm = point.iloc[0], point.set_index("arm")
    cells = [Cell(first["sites"]), Cell(number(first["training_subjects"], ",.0f"))]
    for arm in ARMS:
        if arm in by_arm.index:
            auc = (by_arm.loc[arm, f"auc_{end}"] for end in ("mean", "low", "high"))
            cells.append(with_interval(*auc))
        else:
            # All subjects belong to both curves; they are printed once.
            cells.append(Cell("" if first["sites"] == ALL else NOT_RUN))
    ends = [first[name] for name in DIFFERENCE] if len(point) > 1 else []
    return Row((*cells, with_interval(*ends) if ends else Cell("")))


def curve_rows(sites: Sequence[str], runs: Sequence[str]) -> pd.DataFrame:
    """Points of both curves, in the order of their numbers of sites.

    ``difference`` is all sites minus few sites at the same test sites.
    """
    auc = read_sites(sites)[["cohort", "protocol", "variant", "fold", "auc"]]
    sizes = []
    for folder in runs:
        meta = read_meta(folder)
        for fold in meta["folds"]:
            if any(key not in fold for key in SIZES):
                raise BrioError(
                    f"{folder}/meta.json is of an earlier version and does not say how many "
                    f"subjects trained; delete {folder} and run again"
                )
            words = {key: meta[key] for key in IDENTITY} | {"fold": fold["name"]}
            sizes.append(words | {key: fold[key] for key in SIZES})
    folds = pd.DataFrame(sizes).drop_duplicates(["cohort", "protocol", "variant", "fold"])
    folds = folds.merge(auc.dropna(), on=["cohort", "protocol", "variant", "fold"])
    drawn = folds["protocol"].str.extract(DRAWN)
    folds["arm"], folds["draw"] = drawn[0].fillna("sites"), drawn[2].fillna("")
    folds["sites"] = drawn[1].fillna(ALL)
    found = []
    for _, own in in_paper_order(folds).groupby(["cohort", "variant"], sort=False):
        whole = own.loc[own["sites"] == ALL, "training_subjects"].sum() or math.inf
        numbers = sorted(set(own["sites"]) - {ALL}, key=int)
        for count in [*numbers, ALL]:
            point = own[own["sites"] == count]
            each = point.groupby("protocol")["training_subjects"].sum()
            # A cohort may not have so many sites that one could be left out.
            if len(point) and (count == ALL or each.min() < whole):
                found += _point(point, {key: point[key].iloc[0] for key in WORDS})
    return pd.DataFrame(found)


def _point(point: pd.DataFrame, words: dict) -> list[dict]:
    by_fold = {arm: own.groupby("fold")["auc"].mean() for arm, own in point.groupby("arm")}
    rows = []
    for arm in (arm for arm in ARMS if arm in by_fold):
        own = point[point["arm"] == arm]
        mean, low, high = auc_over_sites(by_fold[arm])
        draws = own[own["draw"] != ""].groupby("draw")["auc"].mean()
        row = {**words, "arm": arm, "sites": own["sites"].iloc[0], "draws": len(draws)}
        row |= {key: own[key].mean() for key in SIZES}
        row |= {"test_sites": len(by_fold[arm]), "auc_mean": mean, "auc_low": low, "auc_high": high}
        row["auc_sd_draws"] = draws.std(ddof=1)
        rows.append(row)
    if len(by_fold) > 1:
        change = (by_fold["subjects"] - by_fold["sites"]).dropna()
        rows[0] |= dict(zip(DIFFERENCE, interval_over_sites(change)))
    return rows
