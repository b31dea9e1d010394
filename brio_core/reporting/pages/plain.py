"""A short page without a template: headings, paragraphs, tables and drawings, for two formats."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from brio_core.reporting.table import Table
from brio_core.reporting.writing import markdown, markdown_text

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 60rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p.notice { border-left: 4px solid #b3541e; background: #fbf3ec; padding: .5rem .8rem; }
table { border-collapse: collapse; font-size: .92rem; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid #dfe3e8; }
th.left, td.left { text-align: left; }
.scroll { overflow-x: auto; } .extra, .note, figcaption { color: #55606e; font-size: .88rem; }
figure { margin: 1rem 0; } svg { max-width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: #1c2430; }
"""


class Heading(NamedTuple):
    """A heading within the page."""

    text: str


class Notice(NamedTuple):
    """A paragraph that must not be overlooked."""

    text: str


class Drawing(NamedTuple):
    """An SVG, whose texts are escaped already, and what it shows in words."""

    svg: str
    caption: str


Block = str | Heading | Notice | Drawing | Table


def as_html(title: str, blocks: Sequence[Block]) -> str:
    """The whole page; it asks for nothing from elsewhere."""
    body = "\n".join(_html(block) for block in blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def as_markdown(title: str, blocks: Sequence[Block]) -> str:
    """The same without drawings."""
    parts = [f"# {markdown_text(title)}"]
    for block in blocks:
        if isinstance(block, Table):
            parts.append(markdown(block).rstrip())
        elif isinstance(block, Heading):
            parts.append(f"## {markdown_text(block.text)}")
        elif isinstance(block, Notice):
            parts.append(f"> **{markdown_text(block.text)}**")
        elif isinstance(block, str):
            parts.append(markdown_text(block))
    return "\n\n".join(parts) + "\n"


def _html(block: Block) -> str:
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Heading):
        return f"<h2>{escape(block.text)}</h2>"
    if isinstance(block, Notice):
        return f'<p class="notice"><strong>{escape(block.text)}</strong></p>'
    if isinstance(block, Drawing):
        caption = f"<figcaption>{escape(block.caption)}</figcaption>"
        return f"<figure>{block.svg}{caption}</figure>"
    return f"<p>{escape(block)}</p>"


def _table(table: Table) -> str:
    def place(number: int) -> str:
        return ' class="left"' if number in table.left else ""

    heads = (f'<th scope="col"{place(i)}>{escape(one)}</th>' for i, one in enumerate(table.columns))
    lines = []
    for row in table.rows:
        cells = []
        for number, cell in enumerate(row.cells):
            text = escape(cell.text) + (
                f' <span class="extra">{escape(cell.extra)}</span>' if cell.extra else ""
            )
            cells.append(f"<td{place(number)}>{text}</td>")
        lines.append(f"<tr>{''.join(cells)}</tr>")
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in table.notes)
    words = " ".join(filter(None, (table.title and f"{table.title}.", table.caption)))
    caption = f"<figcaption>{escape(words)}</figcaption>" if words else ""
    return (
        f'<figure>{caption}<div class="scroll"><table><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{notes}</figure>"
    )
