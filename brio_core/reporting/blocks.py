"""Tables with cohorts one below the other."""

from collections.abc import Callable, Sequence

import pandas as pd

from brio_core.reporting.results import cohort_title, ordered, protocol_title
from brio_core.reporting.tables import Cell, Row


def blocks(
    rows: pd.DataFrame, datasets: dict, cells: Callable[[pd.Series], Sequence[Cell]]
) -> tuple[Row, ...]:
    """A heading for every cohort and protocol, and below it the label and ``cells`` of its rows."""
    lines = []
    for key in ordered(zip(rows["cohort"], rows["protocol"])):
        name = f"{cohort_title(datasets, key[0])}, {protocol_title(key[1])}"
        lines.append(Row((Cell(name),), heading=True))
        own = rows[(rows["cohort"] == key[0]) & (rows["protocol"] == key[1])]
        lines += [Row((Cell(row["label"]), *cells(row))) for _, row in own.iterrows()]
    return tuple(lines)
