"""Documents on disk, with what they were filled in from in a folder beside them.

Predictions of single subjects are not published, the tables made of them are. With these a page can
be filled in again, and anybody can check that its numbers are those of the tables.
"""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from brio_core.reporting.pages.numbers import Sources
from brio_core.reporting.pages.template import Template
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic, own_or_shipped, read_json, write_json, write_text

RECORD = "page.json"


class Page(NamedTuple):
    """A page that is filled in, how it was made, and its files by their names beside it."""

    record: dict
    text: str
    files: dict[str, Path]


def fill(
    template: str,
    experiments: Sequence[str],
    command: str,
    sources: Sources,
    waiting: Sequence[str] = (),
) -> Page:
    """Fill in a template; ``command`` is how the page says that it was made.

    ``waiting`` are tables and figures without results, which the page calls not run.
    """
    path = Path(template)
    made = (sources.tables, sources.figures, experiments)
    parsed = Template(own_or_shipped(path), template, *made, waiting=waiting)
    used = parsed.needs()
    files = {f"{name}.png": sources.figures[name] for name in used["figures"]}
    for kind, suffix in (("tables", ".csv"), ("printed", ".json")):
        files |= {name + suffix: sources.tables[name].with_suffix(suffix) for name in used[kind]}
    head = f"<!-- Made by `{command}` from {path}: change that, not this page. -->"
    text = parsed.fill(lambda call: sources.text(call, path.stem))
    record = {"template": template, "experiments": list(experiments), "command": command}
    if waiting:
        # Only these were asked for.
        record["waiting"] = used["waiting"]
    return Page(record, f"{head}\n\n{text}", files)


def write_page(page: Page, out_dir: Path) -> None:
    """Write a page into ``out_dir``; a folder of its name gets what it was filled in from."""
    name = Path(page.record["template"]).name
    folder = out_dir / Path(name).stem
    for place, file in page.files.items():
        with atomic(folder / place) as temporary:
            shutil.copyfile(file, temporary)
    write_json(folder / RECORD, page.record)
    write_text(out_dir / name, page.text)


def fill_again(path: Path) -> Page:
    """The same for a page that was written before, from the files beside it."""
    folder = path.with_suffix("")
    if not (folder / RECORD).exists():
        raise BrioError(
            f"{path} has no tables in {folder} to be filled in from; make it with "
            "'snakemake document'"
        )
    keys = ("template", "experiments", "command")
    record = read_json(folder / RECORD, *keys)
    sources = Sources(sorted(folder.glob("*.csv")), sorted(folder.glob("*.png")))
    return fill(*(record[key] for key in keys), sources, record.get("waiting", ()))
