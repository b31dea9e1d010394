"""One model of a table, and how its numbers are printed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

NOT_RUN = "not run"
NONE = "–"


@dataclass(frozen=True)
class Cell:
    """A text with something smaller behind it (a deviation or an interval)."""

    text: str
    extra: str = ""
    bold: bool = False


@dataclass(frozen=True)
class Row:
    """A line of the table; ``heading`` lines have one cell that names what follows."""

    cells: tuple[Cell, ...]
    heading: bool = False


@dataclass(frozen=True)
class Table:
    """``spans`` are headings above the columns, as (text, number of columns).

    Columns in ``left`` hold words and are set to the left. ``section`` is the place of the table
    on the overview page, where ``folded`` tables are opened by a click.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    spans: tuple[tuple[str, int], ...] = ()
    section: str = "results"
    left: tuple[int, ...] = (0,)
    folded: bool = False

    @classmethod
    def of(cls, value: dict) -> "Table":
        """The table whose fields :func:`dataclasses.asdict` gave, for JSON."""
        rows = [
            Row(tuple(Cell(**cell) for cell in row["cells"]), row["heading"])
            for row in value["rows"]
        ]
        lists = {key: tuple(one) for key, one in value.items() if isinstance(one, list)}
        return cls(**{**value, **lists, "rows": tuple(rows)})


def heading(text: str) -> Row:
    """A line that names what follows."""
    return Row((Cell(text),), heading=True)


def percent(value: float) -> str:
    """A share in percent with one decimal, or a dash."""
    return number(None if value is None else 100 * value, ".1f")


def number(value: float | None, form: str) -> str:
    """A number in some form, or a dash where there is none."""
    return NONE if value is None or math.isnan(value) else format(float(value), form)


def p_text(p: float | None) -> str:
    """A p-value with three decimals."""
    return "< 0.001" if p is not None and p < 0.001 else number(p, ".3f")


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, whichever is read most easily."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def points(difference: float | None, error: float | None) -> str:
    """A difference in percentage points and its standard error."""
    if difference is None or math.isnan(difference):
        return NONE
    return f"{signed(difference)} ± {percent(error)}"


def signed(difference: float) -> str:
    """A difference in percentage points."""
    # Adding zero takes the sign from one that was rounded to zero.
    return f"{round(100 * difference, 1) + 0.0:+.1f}"


def with_sd(mean: float, sd: float, bold: bool = False) -> Cell:
    """Mean ± standard deviation, or a dash."""
    if math.isnan(mean):
        return Cell(NONE)
    return Cell(percent(mean), f"± {percent(sd)}", bold)


def with_spread(mean: float, sd: float, form: str) -> Cell:
    """The same for what is no share; a single value has no deviation."""
    if math.isnan(mean):
        return Cell(NONE)
    return Cell(number(mean, form), "" if math.isnan(sd) else f"± {sd:{form.lstrip('+')}}")


def with_interval(value: float, low: float, high: float) -> Cell:
    """A value and its interval in brackets."""
    return Cell(percent(value), f"[{percent(low)}, {percent(high)}]")


def interval_columns(name: str, estimate: Iterable[float]) -> dict[str, float]:
    """A value and its interval as columns of a row: ``name``, ``name_low`` and ``name_high``."""
    return dict(zip((name, f"{name}_low", f"{name}_high"), estimate))


def interval_cell(row: Mapping, name: str) -> Cell:
    """The cell of such columns."""
    return with_interval(*(row[f"{name}{end}"] for end in ("", "_low", "_high")))


def auc_cell(row: Mapping) -> Cell:
    """The mean AUC of a row of the summaries, with its interval over sites."""
    return with_interval(*(row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high")))


def auc_text(row: Mapping) -> str:
    """The same in words."""
    cell = auc_cell(row)
    return f"{cell.text} {cell.extra}"


def listed(names: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def is_best(value: float, values: Sequence[float]) -> bool:
    """Whether a value prints as the highest of several; one alone is not best of anything."""
    printed = [float(percent(one)) for one in values if not math.isnan(one)]
    return len(printed) > 1 and not math.isnan(value) and float(percent(value)) == max(printed)


def plural(number: int, word: str) -> str:
    """``1 site``, ``2 sites``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")
