"""Pages: documents on disk, with what they were filled in from in a folder beside them.

Predictions of single subjects are not published, the tables made of them are. With these a page can
be filled in again, and anybody can check that its numbers are those of the tables.
"""

import shutil
from pathlib import Path
from typing import NamedTuple

from brio_core.reporting.document import Sources, render
from brio_core.reporting.templates import needed, read_template
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic, read_json, write_json, write_text

ROOT = Path(__file__).resolve().parents[2]
RECORD = "page.json"


class Made(NamedTuple):
    """How a page was made."""

    template: str
    experiments: list[str]
    left_out: list[str]
    command: str


class Page(NamedTuple):
    """A page that is filled in, and the files that it took, by where they go beside it."""

    made: Made
    text: str
    files: dict[str, Path]


def fill(made: Made, sources: Sources) -> Page:
    """Fill in the template of a page."""
    path = Path(made.template)
    # A path is looked for in the working directory first, then in the repository.
    file = path if path.exists() else ROOT / path
    parts = read_template(file, made.experiments, made.left_out, made.template)
    used = needed(parts, sources.tables, sources.figures)
    files = {f"{name}.png": sources.figures[name] for name in used["figures"]}
    for suffix in (".csv", ".json"):
        tables = {name: sources.tables[name].with_suffix(suffix) for name in used["tables"]}
        files |= {name + suffix: table for name, table in tables.items()}
    head = f"<!-- Made by `{made.command}` from {path}: change that, not this page. -->"
    return Page(made, f"{head}\n\n{render(parts, sources, path.stem)}", files)


def write_page(page: Page, out_dir: Path) -> None:
    """Write a page into ``out_dir``; a folder of its name gets what it was filled in from."""
    name = Path(page.made.template).name
    folder = out_dir / Path(name).stem
    for place, file in page.files.items():
        with atomic(folder / place) as temporary:
            shutil.copyfile(file, temporary)
    write_json(folder / RECORD, page.made._asdict())
    write_text(out_dir / name, page.text)


def fill_again(path: Path) -> Page:
    """The same for a page that was written before, from the files beside it."""
    folder = path.with_suffix("")
    if not (folder / RECORD).exists():
        raise BrioError(
            f"{path} has no tables in {folder} to be filled in from; make it with "
            "'snakemake document'"
        )
    record = read_json(folder / RECORD, *Made._fields)
    made = Made(**{key: record[key] for key in Made._fields})
    return fill(made, Sources(sorted(folder.glob("*.csv")), sorted(folder.glob("*.png"))))
