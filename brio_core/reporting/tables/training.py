"""What validation chose, and how many sites training needs."""

import math
from collections.abc import Sequence

import pandas as pd

from brio_core.cohorts.subsets import DRAWN
from brio_core.evaluation.confounds import auc_over_sites
from brio_core.evaluation.intervals import interval_over_sites
from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, with_planned
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.choices import (
    DIFFERENCE,
    EPOCHS,
    SHARES,
    TRAINING,
    choices,
    chosen_variants,
    differences,
)
from brio_core.reporting.table import (
    NOT_RUN,
    Cell,
    Row,
    Table,
    heading,
    interval_cell,
    interval_columns,
    number,
    percent,
    points,
    with_interval,
)

# The group of rows that validation has chosen.
TOGETHER = "Together"


@output(
    files=["summaries", "sites", "runs"],
    page="training",
    options=["reference"],
)
def checkpoints_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What validation says about variants, with and without the optimism of choosing by it.

    One row per cohort, protocol and variant: means over the folds of all seeds.

    ``validation_difference`` is the cross-selected AUC minus that of the ``reference``, a variant,
    in the same folds of the same seeds, ``validation_difference_se`` its standard error over folds.
    """
    reference = given.entry.get("reference", REFERENCE)
    found = (fold for folder in given.files["runs"] for fold in choices(folder))
    columns = [*results.IDENTITY, *TRAINING, "fold", *EPOCHS, *SHARES, "parts", "validated"]
    folds = pd.DataFrame(found, columns=columns)
    tested = results.read_variants(given.files["summaries"])["auc_mean"]
    seeds = folds.assign(seeds=[*zip(folds["seed"], folds["ring"])])
    groups = seeds.groupby(list(results.IDENTITY), sort=False)
    rows = groups["seeds"].nunique().to_frame().join(groups[[*EPOCHS, *SHARES]].mean())
    rows = rows.join(differences(folds, reference), on=results.PLACE).join(tested, on=results.PLACE)
    sites = results.read_sites(given.files["sites"])
    by_site = sites.set_index([*results.PLACE, "fold"])["auc"].sort_index()
    chosen, notes = _chosen(folds, by_site)
    rows = results.in_paper_order(pd.concat([rows.reset_index(), *chosen]))
    label = results.label_of(rows, reference)
    return with_planned(rows, given), _table(rows, given, label, notes)


def _chosen(folds: pd.DataFrame, by_site: pd.Series) -> tuple[list[pd.DataFrame], list[str]]:
    """Where a method has several variants: the one that validation chooses, and sentences on it."""
    rows, notes = [], []
    for place, part in folds.groupby(["cohort", "protocol", "method"], sort=False):
        labels = part.drop_duplicates("variant").set_index("variant")["label"]
        if len(labels) < 2 or not all((*place[:2], one) in by_site for one in labels.index):
            continue
        own = dict(zip(("cohort", "protocol", "method"), place)) | {"group": TOGETHER}
        title = results.label_of(part, place[2])
        best, nested = chosen_variants(part)
        auc = pd.Series({site: by_site[(*place[:2], one, site)] for site, one in nested.items()})
        globally = by_site[(*place[:2], best)].mean()
        for name, words, value in (
            ("chosen", f"of these {len(labels)} chosen by all folds", globally),
            ("nested", f"of these {len(labels)} chosen by other folds", auc.mean()),
        ):
            identity = {"variant": f"{place[2]}-{name}", "label": f"{title}, {words}"}
            rows.append({**own, **identity, "auc_mean": value})
        counts = pd.Series(nested).map(labels).value_counts(sort=False)
        several = ", ".join(f"{label} ({count})" for label, count in counts.items())
        notes.append(
            f"{title}: all folds together choose {labels[best]}, which has seen the labels of "
            "every site. Chosen by other folds: by those in which a site neither validates nor is "
            f"tested, though it trains there; so many sites take each: {several}."
        )
    return [pd.DataFrame(rows)] if rows else [], notes


def _table(rows: pd.DataFrame, given: Given, reference: str, chosen: Sequence[str]) -> Table:
    columns = (
        "Method", "Seeds", "Epochs trained", "Chosen epoch", "Validation AUC, chosen",
        "Validation AUC, cross-selected", f"Minus {reference}", "Optimism",
        "Validation AUC, last epoch", "Test AUC",
    )  # fmt: skip

    def cells(own: pd.DataFrame) -> list[Cell]:
        row = own.iloc[0]
        shares = [percent(row[key]) for key in (*SHARES, "auc_mean")]
        difference = points(row[DIFFERENCE], row[f"{DIFFERENCE}_se"])
        epochs = [number(row[key], ".1f") for key in EPOCHS]
        texts = (number(row["seeds"], ".0f"), *epochs, *shares[:2], difference, *shares[2:])
        return [Cell(text) for text in texts]

    notes = [
        "AUC in %, epochs and validation as means over folds and seeds. Chosen: the epoch (for "
        "linear models, the penalty) with the best mean AUC of the validation sites. "
        "Cross-selected: the AUC of one validation site at the epoch that the others choose, as a "
        "mean over all ways. Where all source sites train, each is validated by a fit without it. "
        f"Minus {reference}: of the cross-selected AUC, at the same sites in the same folds and "
        "seeds; linear models have one for all. ± is its standard error, which counts that folds "
        "share validation sites. Optimism: chosen minus cross-selected. Last epoch: no choice at "
        "all. Test AUC: as in the tables of results.",
        "One site chooses worse than two, so the cross-selected AUC is somewhat too low for the "
        "model that is kept; it is so for all methods. Where validation also chose "
        "hyperparameters, that choice is not cross-selected. –: a path of penalties has no epochs, "
        "and cross-selection needs two validation sites of both classes.",
        *chosen,
    ]
    return given.table(columns, by_cohort(rows, given, columns, cells), *notes)


ALL = "all"
ARMS = {"sites": "Few sites", "subjects": "All sites, fewer subjects"}
WORDS = [key for key in results.IDENTITY if key != "protocol"]
SIZES = ("training_sites", "training_subjects")
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


@output(files=["sites", "runs"], page="training")
def learning_curve_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """How many sites are needed: training on few sites, or on as many subjects of all sites.

    One row per cohort, variant, number of sites and arm; the last has all sites.
    """
    rows = curve_rows(given.files["sites"], given.files["runs"])
    lines = []
    for (cohort, _), own in rows.groupby(["cohort", "variant"], sort=False):
        title = results.cohort_title(given.datasets, cohort)
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
    change = interval_cell(first, "difference") if len(point) > 1 else Cell("")
    return Row((*cells, change))


def curve_rows(sites: Sequence[str], runs: Sequence[str]) -> pd.DataFrame:
    """Points of both curves, in the order of their numbers of sites.

    ``difference`` is all sites minus few sites at the same test sites.
    """
    auc = results.read_sites(sites)[["cohort", "protocol", "variant", "fold", "auc"]]
    sizes = []
    for folder in runs:
        meta = results.read_meta(folder)
        for fold in meta["folds"]:
            words = {key: meta[key] for key in results.IDENTITY} | {"fold": fold["name"]}
            sizes.append(words | {key: fold[key] for key in SIZES})
    folds = pd.DataFrame(sizes).drop_duplicates(["cohort", "protocol", "variant", "fold"])
    folds = folds.merge(auc.dropna(), on=["cohort", "protocol", "variant", "fold"])
    drawn = folds["protocol"].str.extract(DRAWN)
    folds["arm"], folds["draw"] = drawn[0].fillna("sites"), drawn[2].fillna("")
    folds["sites"] = drawn[1].fillna(ALL)
    found = []
    for _, own in results.in_paper_order(folds).groupby(["cohort", "variant"], sort=False):
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
        rows[0] |= interval_columns("difference", interval_over_sites(change))
    return rows
