"""One model of a table, and how it looks in Markdown, LaTeX and on the overview page."""

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass

NOT_RUN = "not run"
WIDE = 6
PAGE_LINES = 55


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

    def as_dict(self) -> dict:
        """For JSON; the overview page reads it back."""
        return asdict(self)

    @classmethod
    def of(cls, value: dict) -> "Table":
        """The table that :meth:`as_dict` gave."""
        rows = [
            Row(tuple(Cell(**cell) for cell in row["cells"]), row["heading"])
            for row in value["rows"]
        ]
        lists = {key: tuple(one) for key, one in value.items() if isinstance(one, list)}
        return cls(**{**value, **lists, "rows": tuple(rows)})


def percent(value: float) -> str:
    """A share in percent with one decimal, or a dash."""
    return "–" if value is None or math.isnan(value) else f"{100 * value:.1f}"


def with_sd(mean: float, sd: float, bold: bool = False) -> Cell:
    """Mean ± standard deviation."""
    return Cell(percent(mean), f"± {percent(sd)}", bold)


def with_interval(value: float, low: float, high: float, bold: bool = False) -> Cell:
    """A value and its interval in brackets."""
    return Cell(percent(value), f"[{percent(low)}, {percent(high)}]", bold)


def best(values: Sequence[float]) -> float:
    """The highest value as it is printed; all rows that print the same are best."""
    printed = [float(percent(value)) for value in values if not math.isnan(value)]
    return max(printed) if len(printed) > 1 else math.inf


def is_best(value: float, highest: float) -> bool:
    """Whether a value prints as the highest."""
    return not math.isnan(value) and float(percent(value)) >= highest


def plural(number: int, word: str) -> str:
    """``1 site``, ``2 sites``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def markdown_text(text: str) -> str:
    """Escape what Markdown would read as layout."""
    text = re.sub(r"([\\`*_|\[\]])", r"\\\1", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def markdown(table: Table) -> str:
    """GitHub's Markdown; where there are several spans their names move into the columns."""
    spans = [text for text, width in table.spans for _ in range(width)]
    if len(set(spans) - {""}) < 2:
        spans = [""] * len(table.columns)
    heads = [f"{span} {head}".strip() for span, head in zip(spans, table.columns)]
    align = ["---" if i in table.left else "---:" for i in range(len(heads))]
    title = f"**{markdown_text(table.title)}**" if table.title else ""
    lines = [line for text in (title, markdown_text(table.caption)) if text for line in (text, "")]
    lines += [_bar(map(markdown_text, heads)), _bar(align)]
    for row in table.rows:
        if row.heading:
            name = f"*{markdown_text(row.cells[0].text)}*"
            lines.append(_bar([name] + [""] * (len(heads) - 1)))
        else:
            lines.append(_bar(map(_markdown_cell, row.cells)))
    for note in table.notes:
        lines += ["", markdown_text(note)]
    return "\n".join(lines) + "\n"


def _bar(cells) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    text = f"**{text}**" if cell.bold else text
    # Brackets in numbers cannot start a link, so they stay readable.
    return f"{text} {cell.extra}".strip()


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "–": "--", "−": "$-$", "<": r"\textless{}", ">": r"\textgreater{}",
    "×": r"$\times$", "λ": r"$\lambda$",
}  # fmt: skip


def tex_text(text: str) -> str:
    """Escape what LaTeX would read as a command."""
    return "".join(_TEX.get(character, character) for character in text)


def _tex_cell(cell: Cell) -> str:
    text = tex_text(cell.text)
    text = rf"\textbf{{{text}}}" if cell.bold else text
    if cell.extra.startswith("± "):
        return text + rf"$_{{\pm {tex_text(cell.extra[2:])}}}$"
    return text + (rf" {{\footnotesize {tex_text(cell.extra)}}}" if cell.extra else "")


def latex(table: Table, label: str) -> str:
    """A float that needs the booktabs and graphicx packages; wide tables are scaled to the page.

    One that would not fit on a page is a longtable, which breaks across pages.
    """
    width = len(table.columns)
    words = [i for i in table.left if i]
    share = min(0.3, 0.75 / max(len(words), 1))
    align = "".join(
        rf"p{{{share:.2g}\textwidth}}" if i in words else "l" if i in table.left else "r"
        for i in range(width)
    )
    caption = rf"\caption{{{tex_text(table.title)}. {tex_text(table.caption)}}}"
    head = [r"\toprule", *(_tex_spans(table.spans) if table.spans else [])]
    head += [" & ".join(map(tex_text, table.columns)) + r" \\", r"\midrule"]
    body = []
    for number, row in enumerate(table.rows):
        if row.heading:
            if number:
                body.append(r"\addlinespace")
            name = tex_text(row.cells[0].text)
            body.append(rf"\multicolumn{{{width}}}{{l}}{{\textit{{{name}}}}} \\")
        else:
            body.append(" & ".join(map(_tex_cell, row.cells)) + r" \\")
    notes = [
        rf"\par\smallskip\parbox{{\textwidth}}{{\footnotesize {tex_text(note)}}}"
        for note in table.notes
    ]
    label = rf"\label{{tab:{label}}}"
    if len(table.rows) > PAGE_LINES:
        lines = [
            r"% needs \usepackage{booktabs,longtable} and \usepackage[utf8]{inputenc}",
            r"{\small",
            rf"\begin{{longtable}}{{{align}}}",
            rf"{caption}{label} \\",
            *head,
            r"\endhead",
            *body,
            r"\bottomrule",
            r"\end{longtable}",
            *notes,
            "}",
        ]
    else:
        scaled = width > WIDE
        lines = [
            r"% needs \usepackage{booktabs,graphicx} and \usepackage[utf8]{inputenc}",
            r"\begin{table*}[t]",
            r"\centering\small",
            caption,
            label,
            (r"\resizebox{\textwidth}{!}{" if scaled else "") + rf"\begin{{tabular}}{{{align}}}",
            *head,
            *body,
            r"\bottomrule",
            r"\end{tabular}" + ("}" if scaled else ""),
            *notes,
            r"\end{table*}",
        ]
    return "\n".join(lines) + "\n"


def _tex_spans(spans: Sequence[tuple[str, int]]) -> list[str]:
    heads, rules, start = [], [], 1
    for text, width in spans:
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{tex_text(text)}}}")
        if text:
            rules.append(rf"\cmidrule(lr){{{start}-{start + width - 1}}}")
        start += width
    return [" & ".join(heads) + r" \\", "".join(rules)]
