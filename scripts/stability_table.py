"""Agreement of sites and change under re-estimation beside the AUC on unseen sites."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "diagnostics", planned=True).parse_args()

    from brio_core.reporting.diagnostics import read_diagnostics
    from brio_core.reporting.stability import stability_rows, stability_table
    from brio_core.reporting.writing import write_table

    rows = stability_rows(read_diagnostics(arguments.diagnostics))
    words = (arguments.experiment, arguments.planned, arguments.datasets)
    write_table(arguments.out_prefix, rows, stability_table(rows, *words))


if __name__ == "__main__":
    run(main)
