"""Tables and figures as the overview page shows them: sections, places, notes, downloads."""

import base64
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from brio_core.reporting import results
from brio_core.reporting.catalogue import SECTIONS
from brio_core.reporting.vectors import inline, read_picture
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json

# What stays open when the page is opened: of the first section a figure and a table, then the test.
OPEN = {"results": ("figure", "table"), "comparison": ("table",)}
# A note of fewer characters may stand below several tables.
LONG_NOTE = 120
KINDS = {"csv": "text/csv", "tex": "application/x-tex", "pdf": "application/pdf"}
# Cohorts with a protocol: titles of the cohort and of both, by a key of the page.
Places = dict[str, tuple[str, str]]


class Item(NamedTuple):
    """A table or figure with its anchor, the places that it shows, and its files as data."""

    kind: str
    name: str
    section: str
    title: str
    caption: str
    places: str
    downloads: dict[str, str]
    table: dict | None = None
    notes: tuple[int | str, ...] = ()
    """Texts, or numbers of notes that several tables share."""
    svg: str = ""
    alt: str = ""
    width: int = 0
    folded: bool = True

    @property
    def anchor(self) -> str:
        """Its name within the page."""
        return f"{self.kind}-{_anchor(self.name)}"


class Section(NamedTuple):
    """A part of the page."""

    name: str
    title: str
    items: list[Item]


def read_figures(paths: Sequence[str], places: Places) -> list[Item]:
    """Figures with their SVG, which lies beside the PNG that carries the words."""
    found = []
    for path in map(Path, paths):
        picture = read_picture(path)
        try:
            svg = path.with_suffix(".svg").read_text(encoding="utf-8")
        except OSError:
            raise BrioError(f"{path.with_suffix('.svg')} does not exist; run again") from None
        name = _anchor(path.stem)
        found.append(
            Item(
                "figure",
                path.stem,
                picture.section,
                picture.title,
                picture.caption,
                _places(places, [picture.alt]),
                _downloads(path, "pdf"),
                svg=inline(svg, f"figure-{name}"),
                alt=picture.alt,
                width=round(picture.width / 220 * 118),
            )
        )
    return found


def read_tables(paths: Sequence[str], places: Places) -> tuple[list[Item], list[str], list[str]]:
    """Tables, the notes that several of them share, and titles of those with nothing to show."""
    tables = [(Path(path), read_json(path, "title", "rows", "section")) for path in paths]
    empty = [table["title"] for _, table in tables if not _has_rows(table)]
    tables = [(path, table) for path, table in tables if _has_rows(table)]
    count = Counter(note for _, table in tables for note in table["notes"])
    shared = [note for note, times in count.items() if times > 1 and len(note) >= LONG_NOTE]
    found = []
    for path, table in tables:
        heads = [row["cells"][0]["text"] for row in table["rows"] if row["heading"]]
        heads += [text for text, _ in table["spans"]]
        found.append(
            Item(
                "table",
                path.stem,
                table["section"],
                table["title"],
                table["caption"],
                _places(places, [*heads, *table["notes"]]),
                _downloads(path, "csv", "tex"),
                table | {"places": {text: _places(places, [text]) for text in heads}},
                tuple(1 + shared.index(n) if n in shared else n for n in table["notes"]),
            )
        )
    return found, shared, empty


def sections(items: Sequence[Item]) -> list[Section]:
    """Items by the section that they name, in the order of the page, figures before tables."""
    found = results.ordered(item.section for item in items)
    known = list(SECTIONS)
    last = known.index("permuted")
    others = [name for name in found if name not in SECTIONS]
    order = [name for name in [*known[:last], *others, *known[last:]] if name in found]
    parts = []
    for name in order:
        own = [item for item in items if item.section == name]
        opened = [
            next((one for one in own if one.kind == kind), None) for kind in OPEN.get(name, ())
        ]
        first = [one for one in opened if one]
        rest = [item for item in own if item not in first]
        title = SECTIONS.get(name, name[:1].upper() + name[1:])
        items_of = [*(one._replace(folded=False) for one in first), *rest]
        parts.append(Section(_anchor(name), title, items_of))
    return parts


def _has_rows(table: dict) -> bool:
    """Whether a table has a line that says something beside its name."""
    lines = [row["cells"][1:] for row in table["rows"] if not row["heading"]]
    return any(cell["text"] not in ("", "–", "not run") for line in lines for cell in line)


def _places(places: Places, texts: Sequence[str]) -> str:
    """Keys of the places that some texts name, by their whole title or by their cohort alone."""
    whole = [key for key, (_, title) in places.items() if any(title in text for text in texts)]
    cohorts = [key for key, (cohort, _) in places.items() if cohort in texts]
    return " ".join(whole or cohorts)


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _downloads(path: Path, *kinds: str) -> dict[str, str]:
    """Files as data, so that a page that was mailed still has them."""
    found = {}
    for kind in kinds:
        file = path.with_suffix(f".{kind}")
        try:
            data = file.read_bytes()
        except OSError:
            raise BrioError(f"{file} does not exist; run again") from None
        found[kind] = f"data:{KINDS[kind]};base64,{base64.b64encode(data).decode()}"
        if kind == "csv":
            # Numbers stay as they are in a URL, where base64 makes four bytes of three.
            found[kind] = f"data:{KINDS[kind]};charset=utf-8,{quote(data, safe=',;:+()/')}"
    return found
