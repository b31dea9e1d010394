"""Make a table of the catalogue as CSV, Markdown and LaTeX, and as JSON for the overview page."""

from brio_core.reporting.catalogue import read_arguments
from brio_core.system.cli import run


def main() -> None:
    given, prefix = read_arguments("tables", __doc__)

    from brio_core.reporting.writing import write_table

    write_table(prefix, *given.make())


if __name__ == "__main__":
    run(main)
