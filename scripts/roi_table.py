"""The regions that the qualified factors of BRIO pool from."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "diagnostics", planned=True).parse_args()

    from brio_core.reporting.diagnostics import read_diagnostics
    from brio_core.reporting.roi_profiles import profile_rows, profile_table
    from brio_core.reporting.writing import write_table

    rows = profile_rows(read_diagnostics(arguments.diagnostics))
    words = (arguments.experiment, arguments.planned, arguments.datasets)
    write_table(arguments.out_prefix, rows, profile_table(rows, *words))


if __name__ == "__main__":
    run(main)
