"""Tables with cohorts one below the other."""

from collections.abc import Callable, Iterator, Sequence

import pandas as pd

from brio_core.reporting.results import cohort_title, in_paper_order, ordered, protocol_title
from brio_core.reporting.tables import NOT_RUN, Cell, Row


def blocks(
    rows: pd.DataFrame, datasets: dict, cells: Callable[[pd.Series], Sequence[Cell]]
) -> tuple[Row, ...]:
    """A heading for every cohort and protocol, and below it the label and ``cells`` of its rows."""
    lines = []
    for key in ordered(zip(rows["cohort"], rows["protocol"])):
        lines.append(_heading(datasets, *key))
        own = rows[(rows["cohort"] == key[0]) & (rows["protocol"] == key[1])]
        lines += [Row((Cell(row["label"]), *cells(row))) for _, row in own.iterrows()]
    return tuple(lines)


def planned_blocks(
    rows: pd.DataFrame,
    planned: dict,
    datasets: dict,
    columns: Sequence[str],
    cells: Callable[[pd.DataFrame], Sequence[Cell]],
    after: Callable[[pd.DataFrame], Sequence[Row]] = lambda own: (),
) -> Iterator[Row]:
    """The same for all that is planned, with what was not run; ``cells`` of a variant's rows.

    ``after`` are the last lines of a cohort and protocol that has rows.
    """
    empty = [Cell("–")] * (len(columns) - 1)
    words = ["variant", "method", "label", "group"]
    for cohort, protocol in map(tuple, planned["pairs"]):
        yield _heading(datasets, cohort, protocol)
        own = rows[(rows["cohort"] == cohort) & (rows["protocol"] == protocol)]
        if own.empty:
            yield Row((Cell(NOT_RUN), *empty))
            continue
        wanted = pd.DataFrame(planned.get("variants", []), columns=words)
        variants = pd.concat([own[words], wanted]).drop_duplicates("variant")
        for _, variant in in_paper_order(variants).iterrows():
            part = own[own["variant"] == variant["variant"]]
            found = [Cell(NOT_RUN), *empty[1:]] if part.empty else cells(part)
            yield Row((Cell(variant["label"]), *found))
        yield from after(own)


def _heading(datasets: dict, cohort: str, protocol: str) -> Row:
    name = f"{cohort_title(datasets, cohort)}, {protocol_title(protocol)}"
    return Row((Cell(name),), heading=True)
