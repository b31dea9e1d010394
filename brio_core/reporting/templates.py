"""Templates of documents: prose with places, in double braces, for what the tables say.

Planning reads them too, so this module needs nothing but Python.
"""

import difflib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from brio_core.system.errors import BrioError

# What may stand in a place: its words, and how many of them at least and at most.
FORMS = {
    "table": ("TABLE", 1, 1),
    "figure": ("FIGURE", 1, 1),
    "value": ("TABLE [ROW] COLUMN", 2, 3),
    "interval": ("TABLE [ROW] COLUMN", 2, 3),
    "difference": ("TABLE ROW ROW COLUMN", 4, 4),
    "rank": ("TABLE ROW COLUMN", 3, 3),
    "highest": ("TABLE COLUMN", 2, 2),
    "count": ("TABLE", 1, 1),
    "rows": ("TABLE COLUMN…", 2, 99),
    "if": ("EXPERIMENT", 1, 1),
    "end": ("", 0, 0),
}
WHOLE = ("table", "figure", "if", "end")
PLACE = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class Place(NamedTuple):
    """A place of a template; ``chosen`` are its ``key=value`` words, which choose rows."""

    file: str
    line: int
    kind: str
    words: tuple[str, ...]
    chosen: dict[str, str]
    text: str

    def error(self, problem: str) -> BrioError:
        """The sentence for the user about a problem of this place."""
        return BrioError(f"{self.file}, line {self.line}: '{{{{ {self.text} }}}}' {problem}")


def read_template(
    path: str | Path, active: Iterable[str], others: Iterable[str], name: str = ""
) -> list:
    """Texts and places of a template, in order; ``name`` is what messages call it.

    Optional sections stay if their experiment is one of ``active``; ``others`` are the experiments
    that a section may name besides.
    """
    name = name or str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BrioError(f"{name} cannot be read: {error}; give a template in UTF-8") from None
    return _sections(_parts(text, name), set(active), {*active, *others})


def _parts(text: str, file: str) -> list:
    rest = PLACE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    brace = re.search(r"\{\{|\}\}", rest)
    if brace:
        line = rest.count("\n", 0, brace.start()) + 1
        raise BrioError(f"{file}, line {line}: a pair of braces has no partner; close it")
    parts, end = [], 0
    for found in PLACE.finditer(text):
        start, after = found.span()
        place = _place(found[1], file, text.count("\n", 0, start) + 1)
        # A line that only opens or closes a section leaves no empty one behind.
        if place.kind in ("if", "end") and text[:start].rpartition("\n")[2] == "":
            after += text.startswith("\n", after)
        parts += [text[end:start], place]
        end = after
    return [*parts, text[end:]]


def _place(text: str, file: str, line: int) -> Place:
    text = " ".join(text.split())
    place = Place(file, line, "", (), {}, text)
    try:
        kind, *words = shlex.split(text) or [""]
    except ValueError as error:
        raise place.error(f"cannot be read ({error}); name what belongs there") from None
    if kind not in FORMS:
        raise place.error(f"begins with an unknown word{nearest(kind, FORMS)}")
    chosen = dict(word.split("=", 1) for word in words if "=" in word)
    words = tuple(word for word in words if "=" not in word)
    form, least, most = FORMS[kind]
    if not least <= len(words) <= most or (chosen and kind in WHOLE):
        raise place.error(f"must be '{{{{ {f'{kind} {form}'.strip()} }}}}'")
    return place._replace(kind=kind, words=words, chosen=chosen)


def _sections(parts: list, active: set[str], known: set[str]) -> list:
    """Without the optional sections of experiments that are not active."""
    kept, section = [], None
    for part in parts:
        if isinstance(part, Place) and part.kind == "if":
            if section:
                raise part.error(f"stands in the section of line {section.line}; close that first")
            if part.words[0] not in known:
                raise part.error(f"names no experiment{nearest(part.words[0], known)}")
            section = part
        elif isinstance(part, Place) and part.kind == "end":
            if not section:
                raise part.error("closes no section; take it out")
            section = None
        elif not section or section.words[0] in active:
            kept.append(part)
    if section:
        raise section.error("opens a section that '{{ end }}' must close")
    return kept


def needed(parts: list, tables: Iterable[str], figures: Iterable[str]) -> dict[str, list[str]]:
    """Names of the tables and figures in a template; ``tables`` and ``figures`` are those made."""
    made = {"tables": list(tables), "figures": list(figures)}
    found: dict[str, dict] = {"tables": {}, "figures": {}}
    for part in parts:
        if not isinstance(part, Place):
            continue
        kind = "figures" if part.kind == "figure" else "tables"
        name = part.words[0]
        if name not in made[kind]:
            raise part.error(
                f"names the {kind[:-1]} {name!r}, which this configuration does not make"
                f"{nearest(name, made[kind])}"
            )
        found[kind][name] = None
    return {kind: list(names) for kind, names in found.items()}


def nearest(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` when one of the known words is close, else the known words."""
    known = [str(one) for one in known]
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known: {', '.join(known)}"
