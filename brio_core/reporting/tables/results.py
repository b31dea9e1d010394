"""Results of methods and variants, those with permuted labels, and what they cost."""

import pandas as pd

from brio_core.connectivity import FISHER_Z
from brio_core.evaluation.intervals import interval_over_sites
from brio_core.evaluation.scores import Estimate
from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, by_group, pairs, part_of, scored, with_planned
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.table import (
    NOT_RUN,
    Cell,
    Table,
    auc_cell,
    plural,
    with_interval,
)
from brio_core.system.errors import BrioError

THRESHOLD_NOTE = (
    "ACC is at probability 0.5. ACC, threshold: at the logit with the best balanced accuracy of "
    "the fold's validation subjects; –: external predictions have none."
)


@output(files=["summaries", "sites"], options=["reference", "margin"])
def results_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """The table of results: methods as rows, cohorts as columns; variants with their differences.

    AUC and accuracy as mean ± standard deviation over folds.

    Variants of one method are compared with the ``reference``; ``comparison`` does so for methods.
    """
    rows = results.read_summaries(given.files["summaries"])
    if rows["protocol"].str.fullmatch(results.PERMUTED.pattern).any():
        raise BrioError("--summaries holds permuted labels; make the table 'permuted' of these")
    # The same predictions give the same table, wherever they were made.
    rows = rows.drop(columns=list(results.COSTS))
    notes = []
    is_compared = rows["method"].nunique() == 1 and rows["variant"].nunique() > 1
    if is_compared:
        rows, notes = compared(rows, results.read_sites(given.files["sites"]), given)
    return with_planned(rows, given), scores_table(rows, given, is_compared, notes)


def scores_table(rows: pd.DataFrame, given: Given, is_compared: bool, notes: list[str]) -> Table:
    """Groups of methods with cohorts beside each other, or variants with their differences."""
    heads, places = {score: score.upper() for score in results.SCORES}, pairs(rows, given)
    # No threshold where nothing has one.
    if rows[f"{results.AT_THRESHOLD}_mean"].notna().any():
        heads[results.AT_THRESHOLD] = "ACC, threshold"
    scores = scored(rows, tuple(heads))
    if is_compared:
        columns, above = ("Method", *heads.values(), "Difference", *HEADS), ()

        def cells(own: pd.DataFrame) -> list[Cell]:
            return [*scores(own.iloc[0]), *difference_cells(own.iloc[0])]

        lines = by_cohort(rows, given, columns, cells)
    else:
        columns = ("Method", *[*heads.values()] * len(places))
        above = spans(places, given.datasets, len(heads))
        lines = by_group(rows, given, columns, scores)
    about = (
        "All numbers in %. AUC and ACC: mean ± standard deviation over "
        f"{results.fold_names(rows, 's')}, each averaged over seeds first. Bold: the highest of a "
        "column as printed, ties included."
    )
    threshold = [THRESHOLD_NOTE] if results.AT_THRESHOLD in heads else []
    tested = [counts(part_of(rows, *one), one, given.datasets) for one in places]
    return given.table(columns, lines, about, *threshold, *tested, *notes, spans=above)


def spans(places: list, datasets: dict, width: int) -> tuple[tuple[str, int], ...]:
    """The headings above the columns of each cohort and protocol."""
    several = len({protocol for _, protocol in places}) > 1
    names = [
        results.place_title(datasets, *place)
        if several
        else results.cohort_title(datasets, place[0])
        for place in places
    ]
    return (("", 1), *((name, width) for name in names))


def counts(part: pd.DataFrame, place: tuple[str, str], datasets: dict) -> str:
    """One sentence on who was tested, or that nobody was."""
    name = results.place_title(datasets, *place)
    if part.empty:
        return f"{name}: {NOT_RUN}."
    first = part.iloc[0]
    left_out = int(first["left_out"])
    aside = f", {plural(left_out, 'fold')} with one class left out" if left_out else ""
    return (
        f"{name}: "
        f"{plural(int(first['subjects']), 'subject')}, {plural(int(first['sites']), 'site')}, "
        f"{plural(int(first['folds']), 'test fold')}{aside}, {_seeds(part)}."
    )


def _seeds(part: pd.DataFrame) -> str:
    """How many seeds most rows have, and which rows have more or fewer.

    With several rings of validation sites, every training counts.
    """
    usual, rings = part["seeds"].mode().max(), int(part["rings"].max())
    text = plural(int(usual), "seed")
    if rings > 1:
        text = f"{plural(int(usual), 'training')} in {rings} rings of validation sites"
    others = part.loc[part["seeds"] != usual].groupby("seeds", sort=True)["label"]
    aside = [f"{int(number)} of {', '.join(labels)}" for number, labels in reversed(list(others))]
    return text + (f" ({'; '.join(aside)})" if aside else "")


CHANCE = 0.5
ENOUGH = 5


@output(files=["summaries"], page="permuted")
def permuted_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Permuted labels: without a leak the AUC is that of chance, whatever the method.

    The mean over permutations, with an interval that should contain chance.
    """
    summaries = results.read_summaries(given.files["summaries"])
    if not summaries["protocol"].str.fullmatch(results.PERMUTED.pattern).all():
        raise BrioError("--summaries mixes permuted and true labels; make a table of each")
    rows = permuted_rows(summaries)
    places = pairs(rows, Given(given.output))
    columns = ("Method", *["AUC", "50 inside?"] * len(places))

    def cells(row: pd.Series) -> list[Cell]:
        auc = with_interval(row["auc_mean"], row["auc_low"], row["auc_high"])
        return [auc, Cell(row["contains_chance"], bold=row["contains_chance"] == "no")]

    counts = results.ordered(map(str, sorted(rows["permutations"])))
    how = (
        "the interval is Student's over permutations"
        if rows["permutations"].min() >= ENOUGH
        else "the interval is Student's over sites"
    )
    table = given.table(
        columns,
        by_group(rows, Given(given.output), columns, cells),
        f"AUC in %, mean over folds and over {' or '.join(counts)} "
        f"permutation{'' if counts == ['1'] else 's'} of the labels, with its 95 % interval in "
        f"brackets: {how}. Without leakage it contains 50 for about 19 of 20 methods.",
        spans=spans(places, given.datasets, 2),
    )
    return rows, table


def permuted_rows(summaries: pd.DataFrame) -> pd.DataFrame:
    """One row per cohort, protocol and variant: the mean over permutations of the labels.

    The interval is Student's over permutations. Fewer than :data:`ENOUGH` say too little about
    their spread; then their own intervals over sites are combined, as of independent repeats.
    """
    base = summaries["protocol"].map(lambda name: results.PERMUTED.fullmatch(name)[1])
    rows = []
    groups = summaries.assign(protocol=base).groupby(results.PLACE, sort=False)
    for _, part in groups:
        value, low, high = _mean_of_permutations(part)
        first = part.iloc[0]
        row = {key: first[key] for key in results.IDENTITY} | {"permutations": len(part)}
        row |= {"subjects": first["subjects"], "auc_mean": value, "auc_low": low, "auc_high": high}
        row["contains_chance"] = "yes" if low <= CHANCE <= high else "no"
        rows.append(row | {"pooled_auc": part["pooled_auc"].mean()})
    return results.in_paper_order(pd.DataFrame(rows))


def _mean_of_permutations(part: pd.DataFrame) -> Estimate:
    if len(part) >= ENOUGH:
        return interval_over_sites(part["auc_mean"])
    mean = part["auc_mean"].mean()
    below, above = (
        ((part["auc_mean"] - part[end]) ** 2).sum() ** 0.5 / len(part)
        for end in ("auc_sites_low", "auc_sites_high")
    )
    return Estimate(mean, mean - below, mean + above)


def verdict(rows: pd.DataFrame) -> str:
    """One sentence on the permuted labels, for the overview page."""
    outside = rows[rows["contains_chance"] == "no"]
    if outside.empty:
        which = "the interval contains" if len(rows) == 1 else f"all {len(rows)} intervals contain"
        return (
            f"With permuted labels {which} chance (0.50): there is no sign of labels leaking from "
            "test to training."
        )
    several = rows["cohort"].nunique() > 1
    names = ", ".join(
        f"{row['label']}{' on ' + row['cohort'] if several else ''} "
        f"[{row['auc_low']:.2f}, {row['auc_high']:.2f}]"
        for _, row in outside.iterrows()
    )
    return (
        f"With permuted labels {len(outside)} of {plural(len(rows), 'interval')} "
        f"{'misses' if len(outside) == 1 else 'miss'} chance (0.50): {names}. "
        "One in twenty does so without any leak; more than that calls for a closer look."
    )


COLUMNS = ("Method", "Kind", "AUC", "Difference to Fisher z", *HEADS)
NAMES = {"fisher-z": "Fisher z", "logarithm": "logarithm", "partial": "partial correlation"}


@output(files=["summaries", "sites", "runs"], page="training", options=["margin"])
def kinds_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What the kind of connectivity changes: every method on each kind, at the same sites.

    One row per cohort, protocol and variant: a method on a ``kind`` of connectivity.

    Differences are to the same method on Fisher z.
    """
    hyperparameters = results.read_hyperparameters(given.files["runs"])
    kinds = {name: own.get("connectivity", FISHER_Z) for name, own in hyperparameters.items()}
    rows = results.read_summaries(given.files["summaries"]).drop(columns=list(results.COSTS))
    rows["kind"] = rows["variant"].map(kinds)
    plain = rows[rows["kind"] == FISHER_Z].drop_duplicates("method").set_index("method")["variant"]
    reference = rows["method"].map(plain).fillna("")
    sites = results.read_sites(given.files["sites"])
    rows, notes = compared(rows, sites, given, reference, "the same method on Fisher z")
    table = given.table(
        COLUMNS,
        by_cohort(rows, given, COLUMNS, _kinds_cells),
        "AUC in %: the mean over test sites, each averaged over seeds, with Student's 95 % "
        "interval.",
        *notes,
        left=(0, 1),
    )
    return with_planned(rows, given), table


def _kinds_cells(own: pd.DataFrame) -> list[Cell]:
    row = own.iloc[0]
    return [Cell(NAMES.get(row["kind"], row["kind"])), auc_cell(row), *difference_cells(row)]
