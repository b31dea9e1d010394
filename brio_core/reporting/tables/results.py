"""The table of results: methods as rows, cohorts as columns; variants with their differences."""

import pandas as pd

from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort, by_group, pairs, part_of, scored, with_planned
from brio_core.reporting.given import Given
from brio_core.reporting.paired import HEADS, compared, difference_cells
from brio_core.reporting.table import NOT_RUN, Cell, Table, plural
from brio_core.system.errors import BrioError

OUTPUT = {"files": ["summaries", "sites"], "options": ["reference", "margin"]}

THRESHOLD_NOTE = (
    "ACC is at probability 0.5. ACC, threshold: at the logit with the best balanced accuracy of "
    "the fold's validation subjects; –: external predictions have none."
)


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """AUC and accuracy as mean ± standard deviation over folds.

    Variants of one method are compared with the ``reference``; ``comparison`` does so for methods.
    """
    rows = results.read_summaries(given.files["summaries"])
    if rows["protocol"].str.fullmatch(results.PERMUTED.pattern).any():
        raise BrioError("--summaries holds permuted labels; make the table 'permuted' of these")
    # The same predictions give the same table, wherever they were made.
    rows = rows.drop(columns=list(results.COSTS))
    if rows["method"].nunique() > 1 or rows["variant"].nunique() < 2:
        return with_planned(rows, given), results_table(rows, given)
    rows, notes = compared(rows, results.read_sites(given.files["sites"]), given)
    return with_planned(rows, given), variants_table(rows, given, notes)


def results_table(rows: pd.DataFrame, given: Given) -> Table:
    """Groups of methods one below the other, cohorts beside each other."""
    places = pairs(rows, given)
    heads = _heads(rows)
    columns = ("Method", *[*heads.values()] * len(places))
    return given.table(
        columns,
        by_group(rows, given, columns, scored(rows, tuple(heads))),
        *_notes(rows, given),
        spans=spans(places, given.datasets, len(heads)),
    )


def variants_table(rows: pd.DataFrame, given: Given, notes: list[str]) -> Table:
    """Cohorts one below the other, each with its variants and their differences."""
    heads = _heads(rows)
    columns = ("Method", *heads.values(), "Difference", *HEADS)
    scores = scored(rows, tuple(heads))

    def cells(own: pd.DataFrame) -> list[Cell]:
        return [*scores(own.iloc[0]), *difference_cells(own.iloc[0])]

    return given.table(
        columns,
        by_cohort(rows, given, columns, cells),
        *_notes(rows, given),
        *notes,
    )


def _heads(rows: pd.DataFrame) -> dict[str, str]:
    """The scores that are printed; no threshold where nothing has one."""
    heads = {score: score.upper() for score in results.SCORES}
    if rows[f"{results.AT_THRESHOLD}_mean"].notna().any():
        heads[results.AT_THRESHOLD] = "ACC, threshold"
    return heads


def _notes(rows: pd.DataFrame, given: Given) -> list[str]:
    return [
        "All numbers in %. AUC and ACC: mean ± standard deviation over "
        f"{results.fold_names(rows, 's')}, each averaged over seeds first. Bold: the highest of a "
        "column as printed, ties included.",
        *([THRESHOLD_NOTE] if results.AT_THRESHOLD in _heads(rows) else []),
        *(counts(part_of(rows, *one), one, given.datasets) for one in pairs(rows, given)),
    ]


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
