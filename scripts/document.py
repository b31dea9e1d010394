"""Documents: templates in Markdown, filled in from the tables and figures of a run."""

import argparse
import shutil
from pathlib import Path

from brio_core import cli

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--templates", nargs="+", type=Path, required=True, metavar="MD")
    parser.add_argument(
        "--tables", nargs="*", default=[], metavar="CSV", help="each with its .json beside it"
    )
    parser.add_argument("--figures", nargs="*", default=[], metavar="PNG")
    parser.add_argument(
        "--experiments", nargs="*", default=[], help="experiments whose optional sections are kept"
    )
    parser.add_argument(
        "--left-out", nargs="*", default=[], help="other experiments that sections may name"
    )
    parser.add_argument(
        "--command", default="scripts/document.py", help="how the page says that it was made"
    )
    parser.add_argument("--out-dir", type=Path, required=True)
    arguments = parser.parse_args()

    from brio_core.files import atomic, write_text
    from brio_core.reporting.document import Sources, render
    from brio_core.reporting.templates import needed, read_template

    sources = Sources(arguments.tables, arguments.figures)
    pages = {}
    # All are filled in before one is written.
    for path in arguments.templates:
        # A path is looked for in the working directory first, then in the repository.
        file = path if path.exists() else ROOT / path
        parts = read_template(file, arguments.experiments, arguments.left_out, str(path))
        used = needed(parts, sources.tables, sources.figures)["figures"]
        pages[path] = render(parts, sources, path.stem), used
    for path, (text, used) in pages.items():
        for name in used:
            with atomic(arguments.out_dir / path.stem / f"{name}.png") as temporary:
                shutil.copyfile(sources.figures[name], temporary)
        made = f"<!-- Made by `{arguments.command}` from {path}: change that, not this page. -->"
        write_text(arguments.out_dir / path.name, f"{made}\n\n{text}")


if __name__ == "__main__":
    cli.run(main)
