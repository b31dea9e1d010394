"""The table of results: methods as rows, cohorts as columns."""

import pandas as pd

from brio_core.reporting.blocks import across, by_group, pairs, part_of, scored, with_planned
from brio_core.reporting.given import Given
from brio_core.reporting.results import (
    COSTS,
    PERMUTED,
    SCORES,
    cohort_title,
    ordered,
    place_title,
    read_summaries,
)
from brio_core.reporting.table import NOT_RUN, Table, plural
from brio_core.system.errors import BrioError

OUTPUT = {"files": ["summaries"]}


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """AUC and accuracy as mean ± standard deviation over folds."""
    rows = read_summaries(given.files["summaries"])
    if rows["protocol"].str.fullmatch(PERMUTED.pattern).any():
        raise BrioError("--summaries holds permuted labels; make the table 'permuted' of these")
    # The same predictions give the same table, wherever they were made.
    return with_planned(rows.drop(columns=list(COSTS)), given), results_table(rows, given)


def results_table(rows: pd.DataFrame, given: Given) -> Table:
    """What :func:`make` prints."""
    places = pairs(rows, given)
    columns = ("Method", *[score.upper() for score in SCORES] * len(places))

    return given.table(
        columns,
        by_group(rows, given, columns, across(places, len(SCORES), scored(rows))),
        _explanation(rows),
        *(counts(part_of(rows, *place), place, given.datasets) for place in places),
        spans=spans(places, given.datasets, len(SCORES)),
    )


def spans(places: list, datasets: dict, width: int) -> tuple[tuple[str, int], ...]:
    """The headings above the columns of each cohort and protocol."""
    several = len({protocol for _, protocol in places}) > 1
    names = [
        place_title(datasets, *place) if several else cohort_title(datasets, place[0])
        for place in places
    ]
    return (("", 1), *((name, width) for name in names))


def _explanation(rows: pd.DataFrame) -> str:
    units = {"loso": "held-out sites", "id": "test folds"}
    unit = " or ".join(units.get(p, "folds") for p in ordered(rows["protocol"], tuple(units)))
    return (
        f"All numbers in %. AUC and ACC: mean ± standard deviation over {unit}, each averaged over "
        "seeds first. Bold: the highest of a column as printed, ties included."
    )


def counts(part: pd.DataFrame, place: tuple[str, str], datasets: dict) -> str:
    """One sentence on who was tested, or that nobody was."""
    name = place_title(datasets, *place)
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
    """How many seeds most rows have, and which rows have more or fewer."""
    usual = part["seeds"].mode().max()
    text = plural(int(usual), "seed")
    others = part.loc[part["seeds"] != usual].groupby("seeds", sort=True)["label"]
    aside = [f"{int(number)} of {', '.join(labels)}" for number, labels in reversed(list(others))]
    return text + (f" ({'; '.join(aside)})" if aside else "")
