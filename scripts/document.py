"""Documents: templates in Markdown, filled in from the tables and figures of a run."""

import argparse
from pathlib import Path

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--templates", nargs="+", metavar="MD")
    what.add_argument(
        "--again", nargs="+", type=Path, metavar="FOLDER",
        help="folders of tables and figures whose pages are filled in again",
    )  # fmt: skip
    parser.add_argument(
        "--tables", nargs="*", default=[], metavar="CSV", help="each with its .json beside it"
    )
    parser.add_argument("--figures", nargs="*", default=[], metavar="PNG")
    parser.add_argument(
        "--waiting", nargs="*", default=[], help="tables and figures that are called not run"
    )
    parser.add_argument(
        "--command", default="scripts/document.py", help="how the page says that it was made"
    )
    parser.add_argument("--out-dir", type=Path, help="where pages of templates go")
    arguments = parser.parse_args()
    if arguments.templates and not arguments.out_dir:
        parser.error("--templates needs --out-dir")

    from brio_core.reporting.pages.document import fill, fill_again, write_pages
    from brio_core.reporting.pages.numbers import Sources
    from brio_core.system.files import write_text

    # All are filled in before one is written.
    if arguments.again:
        for texts in list(map(fill_again, arguments.again)):
            for path, text in texts.items():
                write_text(path, text)
        return
    given = (arguments.templates, arguments.command, arguments.waiting)
    sources = Sources(arguments.tables, arguments.figures)
    write_pages(fill(*given, sources), arguments.out_dir)


if __name__ == "__main__":
    cli.run(main)
