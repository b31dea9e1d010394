"""Each number of the paper beside ours, with difference, interval and a mark where they part."""

from pathlib import Path

from brio_core.reporting.options import table_options
from brio_core.system.cli import run

PAPER = Path(__file__).resolve().parents[1] / "config" / "paper"


def main() -> None:
    parser = table_options(__doc__, "summaries")
    parser.add_argument("--paper", default=PAPER, metavar="DIR", help="the paper's tables")
    parser.add_argument("--block-lengths", nargs="*", default=[], metavar="JSON")
    parser.add_argument("--inclusion", nargs="*", default=[], metavar="TSV")
    parser.add_argument("--participants", nargs="*", default=[], metavar="TSV")
    arguments = parser.parse_args()

    from brio_core.reporting.cohorts import read_cohorts
    from brio_core.reporting.paper_vs_ours import compare, compared_table
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.tables import markdown
    from brio_core.reporting.writing import write_table
    from brio_core.system.files import write_text

    cohorts = read_cohorts(arguments.inclusion, arguments.participants)
    rows = compare(
        arguments.paper, read_summaries(arguments.summaries), arguments.block_lengths, cohorts
    )
    # The page and LaTeX leave out what was not run; Markdown lists every number.
    write_table(arguments.out_prefix, rows, compared_table(rows, arguments.datasets, False))
    every = compared_table(rows, arguments.datasets, True)
    write_text(f"{arguments.out_prefix}.md", markdown(every))


if __name__ == "__main__":
    run(main)
