"""What the calls of a template become: numbers, tables and figures of a run as Markdown."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from brio_core.reporting.pages.template import Call
from brio_core.reporting.results import read_table
from brio_core.reporting.table import NONE, NOT_RUN, Cell, Row, Table, duration, p_text, percent
from brio_core.reporting.vectors import read_picture
from brio_core.reporting.writing import markdown, markdown_text
from brio_core.system.errors import nearest
from brio_core.system.files import read_json

# Columns that hold shares, which are printed in percent, and those of them that print their sign.
SHARES = re.compile(
    r"(auc|acc|pooled|validation|crossed|change|sensitivity|specificity|balanced_accuracy)(_.*)?"
    r"|(mean|sd|difference|new)(_low|_high)?|sd_sampling.*|female|recognised"
)
SIGNED = re.compile(
    r"((auc|validation|crossed)_)?difference|change(_(mean|from_\d+))?|seed_deviations"
)
P_VALUES = ("p", "p_holm")
# The paper prints these with two decimals, by which cohorts can be told apart.
FRAMES = ("time_points_mean", "time_points_sd")
# The argument that sorts rows by a column, the lowest first.
ORDER = "sorted_by"


class Sources:
    """The files behind a document, by the name of their table or figure."""

    def __init__(self, tables: Iterable[str | Path], figures: Iterable[str | Path]) -> None:
        self.tables = {Path(path).stem: Path(path) for path in tables}
        self.figures = {Path(path).stem: Path(path) for path in figures}
        self._read: dict[str, tuple[list[dict], list[str]]] = {}

    def text(self, call: Call, folder: str) -> str:
        """What a call becomes; tables and figures lie in ``folder`` beside the page."""
        name = call.names[0]
        if name not in (self.figures if call.kind == "figure" else self.tables):
            whole = call.kind in ("table", "figure", "rows")
            return f"*{name}: {NOT_RUN}.*" if whole else NOT_RUN
        if call.kind == "figure":
            picture = read_picture(self.figures[name])
            alt, caption = markdown_text(picture.alt), markdown_text(picture.caption)
            return f"![{alt}]({folder}/{name}.png)\n\n*{caption}*"
        if call.kind == "table":
            table = Table.of(read_json(self.tables[name].with_suffix(".json"), "title", "rows"))
            text = markdown(table).rstrip("\n") + f"\n\n[{name}.csv]({folder}/{name}.csv)"
            summary = f"<summary>{markdown_text(table.title)}</summary>"
            return f"<details>{summary}\n\n{text}\n\n</details>" if table.folded else text
        if name not in self._read:
            read = read_table(self.tables[name])
            self._read[name] = read.to_dict("records"), list(read)
        return getattr(Numbers(call, *self._read[name]), call.kind)()


class Numbers:
    """The rows of a table that a call chooses; the kinds of calls are its public methods."""

    def __init__(self, call: Call, rows: list[dict], columns: list[str]) -> None:
        self.call, self.chosen, self.columns = call, rows, columns
        where = dict(call.where)
        order = where.pop(ORDER, None)
        for key, value in where.items():
            self.chosen = self._where(self.chosen, key, value)
        if order:
            column = self._column(order)
            known = self._known(column)
            rest = [row for row in self.chosen if row not in known]
            self.chosen = [*sorted(known, key=lambda row: float(row[column])), *rest]

    def value(self) -> str:
        cell = self._cell(self._one(self.call.names[1:-1]), self.call.names[-1])
        return f"{markdown_text(cell.text)} {cell.extra}".rstrip()

    def interval(self) -> str:
        return self._ends(self._one(self.call.names[1:-1]), self.call.names[-1])

    def highest(self) -> str:
        name = self.call.names[1]
        column = self._column(name.partition(" [")[0])
        known = self._known(column)
        if not known:
            return NOT_RUN
        row = max(known, key=lambda row: float(row[column]))
        cell = self._cell(row, name)
        return f"{markdown_text(row.get('label', ''))} ({f'{cell.text} {cell.extra}'.rstrip()})"

    def count(self) -> str:
        return f"{len(self.chosen):,}"

    def rows(self) -> str:
        """Some columns as a table; a heading of one's own stands behind a colon."""
        named = [name.partition(":") for name in self.call.names[1:]]
        names = [name for name, _, _ in named]
        heads = tuple(head or name.replace("_", " ").capitalize() for name, _, head in named)
        lines = [Row(tuple(self._cell(row, one) for one in names)) for row in self.chosen]
        columns = [self._column(name.partition(" [")[0]) for name in names]
        left = tuple(index for index, one in enumerate(columns) if not self._known(one))
        return markdown(Table("", "", heads, tuple(lines), left=left)).rstrip("\n")

    def _cell(self, row: dict, name: str) -> Cell:
        """A column, or a column and an interval: ``auc [auc_sites]`` is 70.5 [68.0, 73.0]."""
        name, brackets, ends = name.partition(" [")
        text = _printed(row, self._column(name))
        if not brackets or text in (NONE, NOT_RUN):
            return Cell(text)
        found = self._ends(row, ends.removesuffix("]"))
        return Cell(text, "" if NONE in found else found)

    def _ends(self, row: dict, name: str) -> str:
        # Tables whose rows are numbers call the ends of the only interval low and high.
        ends = ("low", "high") if name == "ours" else (f"{name}_low", f"{name}_high")
        low, high = (_printed(row, self._column(end), signed=False) for end in ends)
        # Without a break between its ends.
        return f"[{low},\u00a0{high}]"

    def _column(self, name: str) -> str:
        """A column of the table; for scores ``auc`` is short for ``auc_mean``."""
        for column in (name, f"{name}_mean"):
            if column in self.columns:
                return column
        raise self.call.error(f"names an unknown column {name!r}{nearest(name, self.columns)}")

    def _known(self, column: str) -> list[dict]:
        """The rows that have a number there."""
        return [row for row in self.chosen if _number(row[column]) is not None]

    def _where(self, rows: list[dict], key: str, value: str) -> list[dict]:
        if key not in self.columns:
            raise self.call.error(f"names an unknown column {key!r}{nearest(key, self.columns)}")
        numbers = {_number(value)} - {None}
        found = [row for row in rows if row[key] == value or _number(row[key]) in numbers]
        if not found and self.call.kind != "count":
            known = dict.fromkeys(row[key] for row in rows)
            raise self.call.error(f"finds no row with {key}={value}{nearest(value, known)}")
        return found

    def _one(self, names: Sequence[str]) -> dict:
        """The one row that is meant, by its variant (or method) where a name is given."""
        rows = self.chosen
        for name in names:
            rows = self._where(rows, "variant" if "variant" in self.columns else "method", name)
        if len(rows) > 1:
            values = {key: {row[key] for row in rows} for key in self.columns}
            differing = [key for key, found in values.items() if len(found) == len(rows)]
            keys = [key for key in differing if _number(rows[0][key]) is None] or differing
            hint = f'{keys[0]}="{rows[0][keys[0]]}"' if keys else "COLUMN=VALUE"
            raise self.call.error(f"means {len(rows)} rows; choose one, for example by {hint}")
        if not rows:
            raise self.call.error("names a table without rows; take it out")
        return rows[0]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _printed(row: dict, column: str, signed: bool = True) -> str:
    """A cell as prose shows it; a positive difference has a plus where it may be ``signed``."""
    text = row[column]
    value = _number(text)
    if value is None:
        return text or (NOT_RUN if row.get("status") == NOT_RUN else NONE)
    if column in P_VALUES:
        return p_text(value)
    if row.get("unit") in ("%", "points"):
        text = f"{value:.1f}"
    elif SHARES.fullmatch(column) and "unit" not in row:
        text = percent(value)
    elif column == "seconds":
        return duration(value)
    elif column in FRAMES:
        text = f"{value:.2f}"
    else:
        digits = 4 if abs(value) >= 100 else 3
        text = f"{value:,.0f}" if value == round(value) else f"{value:.{digits}g}"
    sign = float(text.replace(",", ""))
    differs = SIGNED.fullmatch(column) or row.get("unit") == "points"
    plus = "+" if signed and differs and sign > 0 else ""
    return plus + text.replace("-", "−" if sign else "")
