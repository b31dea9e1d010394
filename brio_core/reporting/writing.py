"""A table in its four formats: CSV, Markdown, LaTeX and JSON for the overview page."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from brio_core.reporting.table import Cell, Table
from brio_core.system.files import write_json, write_text

WIDE = 6
PAGE_LINES = 55


def write_table(
    prefix: str | Path, rows: pd.DataFrame, table: Table, printed: Table | None = None
) -> None:
    """``rows`` in full precision as CSV, ``table`` as LaTeX and JSON, and ``printed`` or the same
    as Markdown."""
    write_text(f"{prefix}.csv", rows.to_csv(index=False))
    write_text(f"{prefix}.md", markdown(printed or table))
    write_text(f"{prefix}.tex", latex(table, Path(prefix).name))
    write_json(f"{prefix}.json", asdict(table))


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
