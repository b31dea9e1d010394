"""Build the documentation site: the pages of the repository, and a reference made from the code.

Pages keep their places, so that links work here as they do in the repository. A link to a file that
is no page leads to a copy of that file.
"""

import argparse
import fnmatch
import logging
import re
import shutil
import sys
import tempfile
from pathlib import Path

from brio_core.system import cli
from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[1]
PAGES = (
    "*.md", "config/*.md", "docs/*.md", "docs/*/*.md", "results/README.md", "studies/*/README.md",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "site", help="folder to write (site)")
    arguments = parser.parse_args()
    build(arguments.out)


def build(out: Path) -> None:
    """Write the site; a page with a dead link is an error."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        pages = stage(Path(folder))
        config = load_config(
            str(ROOT / "mkdocs.yml"), docs_dir=folder, site_dir=str(out.resolve()), strict=True
        )
        config.nav = placed(config.nav, pages)
        config.plugins.on_startup(command="build", dirty=False)
        try:
            mkdocs_build(config)
        except Abort as abort:
            raise BrioError("the site has the problems above; mend the pages") from abort
        config.plugins.on_shutdown()


def stage(folder: Path) -> list[str]:
    """Copy all pages and what they link to, write the reference, and return the names of pages."""
    sys.path.insert(0, str(Path(__file__).parent))
    from manual import reference

    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for link in set(re.findall(r"\]\(([^)#\s]+)\)", text)):
            path = (page.parent / link).resolve()
            if path.is_file() and path not in pages:
                # A template of a page is text here, not a page.
                end = ".txt" if path.suffix == ".md" else ""
                text = text.replace(f"]({link})", f"]({link}{end})")
                copy = folder / f"{path.relative_to(ROOT)}{end}"
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copy)
        copy = folder / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(indented(text), encoding="utf-8")
    shutil.copy(ROOT / "docs" / "iframe-worker.js", folder / "docs")
    written = reference()
    (folder / "reference").mkdir()
    for name, text in written.items():
        (folder / "reference" / f"{name}.md").write_text(text, encoding="utf-8")
    names = [page.relative_to(ROOT).as_posix() for page in pages]
    return names + [f"reference/{name}.md" for name in written]


def indented(text: str) -> str:
    """What belongs to an item of a list, by four spaces: Python's Markdown takes no two."""
    parts = re.split(r"(^ *```.*?^ *```)", text, flags=re.M | re.S)
    for index, part in enumerate(parts):
        # Blocks of code keep the indents of their lines.
        more = re.match(" *", part)[0] if index % 2 else r"\1"
        parts[index] = re.sub(r"^( *)(?=\S)", rf"\1{more}", part, flags=re.M)
    return "".join(parts)


def placed(entries: list, pages: list[str]) -> list:
    """The navigation with patterns replaced by pages; every page has the first place it fits."""
    left = dict.fromkeys(pages)

    def expand(entry: object) -> list:
        if isinstance(entry, str):
            found = fnmatch.filter(left, entry)
            for page in found:
                del left[page]
            return found
        if isinstance(entry, dict):
            ((title, inside),) = entry.items()
            single = isinstance(inside, str) and "*" not in inside
            found = expand(inside)
            return [{title: found[0] if single else found}] if found else []
        return [page for one in entry for page in expand(one)]

    return expand(entries)


if __name__ == "__main__":
    cli.run(main)
