"""The lines of tables: variants in the order of the paper, also those that were not run."""

from collections.abc import Callable, Sequence

import pandas as pd

from brio_core.reporting.catalogue import Given
from brio_core.reporting.results import PROTOCOLS, SCORES, in_paper_order, ordered, place_title
from brio_core.reporting.table import NOT_RUN, Cell, Row, heading, is_best, with_sd

VARIANT_WORDS = ("variant", "method", "label", "group")
COUNTS = ("seeds", "rings", "folds", "left_out", "subjects", "sites", "parameters", "permutations")
Cells = Callable[[pd.DataFrame], Sequence[Cell]]


def by_cohort(
    rows: pd.DataFrame,
    given: Given,
    columns: Sequence[str],
    cells: Cells,
    after: Callable[[pd.DataFrame], Sequence[Row]] = lambda own: (),
) -> tuple[Row, ...]:
    """Cohorts and protocols one below the other, each with its variants.

    ``cells`` makes the cells of a variant from its part of ``rows``. ``after`` makes the last lines
    of a cohort and protocol.
    """
    lines = []
    for cohort, protocol in pairs(rows, given):
        own = part_of(rows, cohort, protocol)
        title = place_title(given.datasets, cohort, protocol)
        lines.append(heading(title if len(own) else f"{title}: {NOT_RUN}"))
        if len(own):
            lines += _lines(own, variants(own, given), columns, cells)
            lines += after(own)
    return tuple(lines)


def by_group(
    rows: pd.DataFrame,
    given: Given,
    columns: Sequence[str],
    cells: Callable[[pd.Series], list[Cell]],
) -> tuple[Row, ...]:
    """The groups of the paper one below the other, cohorts and protocols beside each other.

    ``cells`` makes the cells of a variant from its row for one cohort and protocol.
    """
    places = pairs(rows, given)
    width = (len(columns) - 1) // max(len(places), 1)

    def every(own: pd.DataFrame) -> list[Cell]:
        found = []
        for place in places:
            here = part_of(own, *place)
            found += [Cell(NOT_RUN)] * width if here.empty else cells(here.iloc[0])
        return found

    lines = []
    for group, methods in variants(rows, given).groupby("group", sort=False):
        lines += [heading(group), *_lines(rows, methods, columns, every)]
    return tuple(lines)


def _lines(rows: pd.DataFrame, methods: pd.DataFrame, columns: Sequence[str], cells: Cells):
    for _, method in methods.iterrows():
        own = rows[rows["variant"] == method["variant"]]
        found = cells(own) if len(own) else [Cell(NOT_RUN)] * (len(columns) - 1)
        yield Row((Cell(method["label"]), *found))


def scored(rows: pd.DataFrame, scores: Sequence[str] = SCORES) -> Callable[[pd.Series], list[Cell]]:
    """Cells for the scores of one of ``rows``; the highest of its cohort and protocol are bold."""

    def cells(row: pd.Series) -> list[Cell]:
        found = []
        for score in scores:
            rivals = part_of(rows, row["cohort"], row["protocol"])[f"{score}_mean"].tolist()
            mean, sd = row[f"{score}_mean"], row[f"{score}_sd"]
            found.append(with_sd(mean, sd, is_best(mean, rivals)))
        return found

    return cells


def variants(rows: pd.DataFrame, given: Given) -> pd.DataFrame:
    """The variants that have rows or are planned, in the order of the paper."""
    columns = list(VARIANT_WORDS)
    planned = pd.DataFrame(given.planned.get("variants", []), columns=columns)
    found = pd.concat([rows[columns], planned]).drop_duplicates("variant")
    return in_paper_order(found)


def pairs(rows: pd.DataFrame, given: Given) -> list[tuple[str, str]]:
    """The same for cohorts and protocols: cohorts as they come, ``loso`` before ``id``."""
    planned = map(tuple, given.planned.get("pairs", []))
    present = ordered([*planned, *zip(rows["cohort"], rows["protocol"])])
    cohorts = ordered(cohort for cohort, _ in present)
    protocols = ordered((protocol for _, protocol in present), tuple(PROTOCOLS))
    every = [(cohort, protocol) for cohort in cohorts for protocol in protocols]
    return [pair for pair in every if pair in present]


def part_of(rows: pd.DataFrame, cohort: str, protocol: str) -> pd.DataFrame:
    """The rows of one cohort and protocol."""
    return rows[(rows["cohort"] == cohort) & (rows["protocol"] == protocol)]


def with_planned(rows: pd.DataFrame, given: Given) -> pd.DataFrame:
    """Rows for the CSV: those with results, and those that belong there but were not run."""
    present = set(zip(rows["cohort"], rows["protocol"], rows["variant"]))
    missing = [
        {"status": NOT_RUN, "cohort": cohort, "protocol": protocol}
        | {name: one[name] for name in VARIANT_WORDS}
        for cohort, protocol in given.planned.get("pairs", [])
        for one in given.planned.get("variants", [])
        if (cohort, protocol, one["variant"]) not in present
    ]
    done = rows.assign(status="run")
    table = pd.concat([done, pd.DataFrame(missing)]) if missing else done
    whole = [name for name in COUNTS if name in table]
    return table[["status", *rows.columns]].astype(dict.fromkeys(whole, "Int64"))
