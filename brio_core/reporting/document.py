"""A document: its template, with numbers, tables and figures of the run in their places."""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from brio_core.reporting.overview import read_picture
from brio_core.reporting.results import read_table
from brio_core.reporting.table import NOT_RUN, Cell, Row, Table, duration, p_text, percent
from brio_core.reporting.templates import Place, nearest
from brio_core.reporting.writing import markdown, markdown_text
from brio_core.system.files import read_json

# Columns that hold shares, which are printed in percent, and those of them that print their sign.
SHARES = re.compile(
    r"(auc|acc|pooled|validation|crossed|change|sensitivity|specificity|balanced_accuracy)(_.*)?"
    r"|(mean|sd|difference)(_low|_high)?|sd_sampling.*|female|recognised"
)
SIGNED = re.compile(r"((auc|validation|crossed)_)?difference|change_(mean|from_\d+)")
P_VALUES = ("p", "p_holm")
NOTHING = "–"


class Sources:
    """The files behind a document, by the name of their table or figure."""

    def __init__(self, tables: Sequence[str | Path], figures: Sequence[str | Path]) -> None:
        self.tables = {Path(path).stem: Path(path) for path in tables}
        self.figures = {Path(path).stem: Path(path) for path in figures}
        self._read: dict[str, pd.DataFrame] = {}

    def rows(self, table: str) -> pd.DataFrame:
        """A table's CSV as text."""
        if table not in self._read:
            self._read[table] = read_table(self.tables[table])
        return self._read[table]


def render(parts: list, sources: Sources, folder: str) -> str:
    """The text of a template's ``parts``; tables and figures lie in ``folder`` beside it."""
    return "".join(
        _filled(part, sources, folder) if isinstance(part, Place) else part for part in parts
    )


def _filled(place: Place, sources: Sources, folder: str) -> str:
    name = place.words[0]
    if place.kind == "figure":
        picture = read_picture(sources.figures[name])
        alt, caption = markdown_text(picture.alt), markdown_text(picture.caption)
        return f"![{alt}]({folder}/{name}.png)\n\n*{caption}*"
    if place.kind == "table":
        table = Table.of(read_json(sources.tables[name].with_suffix(".json"), "title", "rows"))
        text = markdown(table).rstrip("\n") + f"\n\n[{name}.csv]({folder}/{name}.csv)"
        summary = f"<summary>{markdown_text(table.title)}</summary>"
        return f"<details>{summary}\n\n{text}\n\n</details>" if table.folded else text
    rows = sources.rows(name)
    for key, value in place.chosen.items():
        rows = _where(place, rows, key, value)
    return FILLED[place.kind](place, rows)


def _value(place: Place, rows: pd.DataFrame) -> str:
    row = _one(place, rows, place.words[1:-1])
    return markdown_text(_printed(row, _column(place, rows, place.words[-1])))


def _interval(place: Place, rows: pd.DataFrame) -> str:
    row, name = _one(place, rows, place.words[1:-1]), place.words[-1]
    # Tables whose rows are numbers call the ends of the only interval low and high.
    ends = ("low", "high") if name == "ours" else (f"{name}_low", f"{name}_high")
    low, high = (_printed(row, _column(place, rows, end)) for end in ends)
    return f"[{low}, {high}]"


def _difference(place: Place, rows: pd.DataFrame) -> str:
    column = _column(place, rows, place.words[3])
    first, second = (_one(place, rows, (name,)) for name in place.words[1:3])
    values = [_number(row[column]) for row in (first, second)]
    if None in values:
        return NOT_RUN if NOT_RUN in (first.get("status"), second.get("status")) else NOTHING
    return _printed(first | {column: repr(values[0] - values[1])}, column, signed=True)


def _rank(place: Place, rows: pd.DataFrame) -> str:
    """Counted in numbers as they are printed, so that equal ones share a rank."""
    column = _column(place, rows, place.words[2])
    own = _one(place, rows, place.words[1:2])
    if _number(own[column]) is None:
        return NOT_RUN
    known = [row for row in rows.to_dict("records") if _number(row[column]) is not None]
    ahead = [row for row in known if _number(row[column]) > _number(own[column])]
    printed = _printed(own, column)
    place_of = 1 + sum(_printed(row, column) != printed for row in ahead)
    return f"{place_of} of {len(known)}"


def _highest(place: Place, rows: pd.DataFrame) -> str:
    column = _column(place, rows, place.words[1])
    values = {index: _number(text) for index, text in rows[column].items()}
    known = {index: value for index, value in values.items() if value is not None}
    if not known:
        return NOT_RUN
    row = rows.loc[max(known, key=known.get)].to_dict()
    return f"{markdown_text(row.get('label', ''))} ({_printed(row, column)})"


def _count(place: Place, rows: pd.DataFrame) -> str:
    return f"{len(rows):,}"


def _rows(place: Place, rows: pd.DataFrame) -> str:
    """Some columns as a table; a heading of one's own stands behind a colon."""
    words = [word.partition(":") for word in place.words[1:]]
    columns = [_column(place, rows, name) for name, _, _ in words]
    heads = [head or name.replace("_", " ").capitalize() for name, _, head in words]
    lines = [
        Row(tuple(Cell(_printed(row.to_dict(), column)) for column in columns))
        for _, row in rows.iterrows()
    ]
    is_text = [all(_number(text) is None for text in rows[column]) for column in columns]
    left = tuple(index for index, one in enumerate(is_text) if one)
    return markdown(Table("", "", tuple(heads), tuple(lines), left=left)).rstrip("\n")


FILLED = {
    "value": _value,
    "interval": _interval,
    "difference": _difference,
    "rank": _rank,
    "highest": _highest,
    "count": _count,
    "rows": _rows,
}


def _column(place: Place, rows: pd.DataFrame, name: str) -> str:
    """A column of the table; for scores ``auc`` is short for ``auc_mean``."""
    for column in (name, f"{name}_mean"):
        if column in rows:
            return column
    raise place.error(f"names an unknown column {name!r}{nearest(name, rows.columns)}")


def _where(place: Place, rows: pd.DataFrame, key: str, value: str) -> pd.DataFrame:
    if key not in rows:
        raise place.error(f"names an unknown column {key!r}{nearest(key, rows.columns)}")
    known = list(dict.fromkeys(rows[key]))
    number = _number(value)
    same = [text == value or (number is not None and _number(text) == number) for text in rows[key]]
    if not any(same) and place.kind != "count":
        raise place.error(f"finds no row with {key}={value}{nearest(value, known)}")
    return rows[same]


def _one(place: Place, rows: pd.DataFrame, names: Sequence[str]) -> dict:
    """The one row that is meant, by its variant (or method) where a name is given."""
    for name in names:
        rows = _where(place, rows, "variant" if "variant" in rows else "method", name)
    if len(rows) > 1:
        differing = [key for key in rows if rows[key].nunique() == len(rows)]
        keys = [key for key in differing if _number(rows[key].iloc[0]) is None] or differing
        hint = f"{keys[0]}={rows[keys[0]].iloc[0]}" if keys else "COLUMN=VALUE"
        raise place.error(f"means {len(rows)} rows; choose one, for example by '{hint}'")
    return rows.iloc[0].to_dict()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _printed(row: dict, column: str, signed: bool | None = None) -> str:
    """A cell as prose shows it; ``signed`` differences have a plus where they are positive."""
    text = row[column]
    value = _number(text)
    if value is None:
        return text or (NOT_RUN if row.get("status") == NOT_RUN else NOTHING)
    if column in P_VALUES:
        return p_text(value)
    if row.get("unit") == "%":
        text = f"{value:.1f}"
    elif SHARES.fullmatch(column) and "unit" not in row:
        text = percent(value)
    elif column == "seconds":
        return duration(value)
    else:
        digits = 4 if abs(value) >= 100 else 3
        text = f"{value:,.0f}" if value == round(value) else f"{value:.{digits}g}"
    signed = bool(SIGNED.fullmatch(column)) if signed is None else signed
    sign = float(text.replace(",", ""))
    plus = "+" if signed and sign > 0 else ""
    return plus + text.replace("-", "−" if sign else "")
