"""What training took per method, measured by the training jobs, beside the paper's figures."""

from pathlib import Path

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run

PAPER = Path(__file__).resolve().parents[1] / "config" / "paper" / "table_efficiency.csv"


def main() -> None:
    parser = experiment_options(__doc__, "summaries", planned=True)
    parser.add_argument("--paper", default=PAPER, metavar="CSV", help="the paper's figures")
    arguments = parser.parse_args()

    from brio_core.reporting.efficiency import efficiency_rows, efficiency_table
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.writing import write_table

    summaries = read_summaries(arguments.summaries)
    rows = efficiency_rows(summaries, arguments.planned, arguments.paper)
    table = efficiency_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
