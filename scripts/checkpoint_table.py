"""Validation AUC with and without the luck of choosing, beside the AUC of the test."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "summaries", "runs", planned=True).parse_args()

    from brio_core.reporting.checkpoints import checkpoint_rows, checkpoint_table
    from brio_core.reporting.comparison import REFERENCE
    from brio_core.reporting.results import read_summaries
    from brio_core.reporting.results_table import with_planned
    from brio_core.reporting.writing import write_table

    summaries = read_summaries(arguments.summaries)
    rows = checkpoint_rows(
        summaries, arguments.runs, arguments.experiment.get("reference", REFERENCE)
    )
    table = checkpoint_table(rows, arguments.experiment, arguments.planned, arguments.datasets)
    write_table(arguments.out_prefix, with_planned(rows, arguments.planned), table)


if __name__ == "__main__":
    run(main)
