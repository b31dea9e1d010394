"""Statistics of the cohorts beside those of the paper's table of datasets."""

from pathlib import Path

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run

PAPER = Path(__file__).resolve().parents[1] / "config" / "paper"


def main() -> None:
    parser = experiment_options(__doc__, "inclusion", "participants")
    parser.add_argument("--block-lengths", nargs="*", default=[], metavar="JSON")
    parser.add_argument("--paper", default=PAPER, metavar="DIR", help="the paper's tables")
    arguments = parser.parse_args()

    from brio_core.reporting.cohorts import read_cohorts
    from brio_core.reporting.datasets import dataset_rows, dataset_table
    from brio_core.reporting.writing import write_table

    cohorts = read_cohorts(arguments.inclusion, arguments.participants)
    rows = dataset_rows(cohorts, arguments.block_lengths, arguments.paper, arguments.datasets)
    write_table(
        arguments.out_prefix, rows, dataset_table(rows, arguments.experiment, arguments.datasets)
    )


if __name__ == "__main__":
    run(main)
