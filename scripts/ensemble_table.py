"""Scores of single seeds, and of the mean of all seeds' probabilities."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "runs").parse_args()

    from brio_core.reporting.ensembles import ensemble_rows, ensemble_table
    from brio_core.reporting.writing import write_table

    rows = ensemble_rows(arguments.runs)
    table = ensemble_table(rows, arguments.experiment, arguments.datasets)
    write_table(arguments.out_prefix, rows, table)


if __name__ == "__main__":
    run(main)
