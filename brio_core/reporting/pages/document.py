"""Documents on disk, with what they were filled in from in one folder beside them.

Predictions of single subjects are not published, the tables made of them are. With these pages can
be filled in again, and anybody can check that their numbers are those of the tables.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brio_core.reporting.pages.numbers import Sources
from brio_core.reporting.pages.template import Template
from brio_core.system.files import atomic, own_or_shipped, read_json, write_json, write_text

RECORD = "pages.json"


class Pages(NamedTuple):
    """The pages of a call by their names, how they were made, and the files of their folder."""

    record: dict
    texts: dict[str, str]
    files: dict[str, Path]


def fill(templates: Sequence[str], command: str, waiting: Sequence[str], sources: Sources) -> Pages:
    """Fill in templates; ``command`` is how the pages say that they were made.

    ``waiting`` are tables and figures without results, which the pages call not run.
    """
    folder = Path(templates[0]).stem
    texts, files, asked = {}, {}, {}
    for path in map(Path, templates):
        names = (sources.tables, sources.figures, waiting)
        parsed = Template(own_or_shipped(path), str(path), *names)
        used = parsed.needs()
        files |= {f"{name}.png": sources.figures[name] for name in used["figures"]}
        for kind, end in (("tables", ".csv"), ("printed", ".json")):
            files |= {name + end: sources.tables[name].with_suffix(end) for name in used[kind]}
        asked |= dict.fromkeys(used["waiting"])
        head = f"<!-- Made by `{command}` from {path}: change that, not this page. -->"
        texts[path.name] = f"{head}\n\n{parsed.fill(lambda call: sources.text(call, folder))}"
    record = {"templates": templates, "command": command, "waiting": list(asked)}
    return Pages(record, texts, files)


def write_pages(pages: Pages, out_dir: Path) -> None:
    """Write pages into ``out_dir``; a folder named after the first gets the files of all."""
    folder = out_dir / Path(next(iter(pages.texts))).stem
    for name, file in pages.files.items():
        with atomic(folder / name) as temporary:
            shutil.copyfile(file, temporary)
    write_json(folder / RECORD, pages.record)
    for name, text in pages.texts.items():
        write_text(out_dir / name, text)


def fill_again(folder: Path) -> dict[Path, str]:
    """Pages that were written before and their texts now, from the folder of their files."""
    keys = ("templates", "command", "waiting")
    record = read_json(folder / RECORD, *keys)
    sources = Sources(folder.glob("*.csv"), folder.glob("*.png"))
    pages = fill(*(record[key] for key in keys), sources)
    return {folder.resolve().parent / name: text for name, text in pages.texts.items()}
