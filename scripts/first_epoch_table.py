"""Validation AUC of the same trainings, had checkpoints been eligible from another epoch on."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "runs", planned=True).parse_args()

    from brio_core.reporting.first_epochs import first_epoch_rows, first_epoch_table
    from brio_core.reporting.results_table import with_planned
    from brio_core.reporting.writing import write_table

    rows = first_epoch_rows(arguments.runs)
    table = first_epoch_table(rows, arguments.experiment, arguments.planned, arguments.datasets)
    write_table(arguments.out_prefix, with_planned(rows, arguments.planned), table)


if __name__ == "__main__":
    run(main)
