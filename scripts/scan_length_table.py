"""AUC of trained models when test scans are cut short."""

from brio_core.reporting.options import experiment_options
from brio_core.system.cli import run


def main() -> None:
    arguments = experiment_options(__doc__, "diagnostics", planned=True).parse_args()

    from brio_core.reporting.diagnostics import read_diagnostics
    from brio_core.reporting.scan_length import scan_length_rows, scan_length_table
    from brio_core.reporting.writing import write_table

    rows = scan_length_rows(read_diagnostics(arguments.diagnostics))
    words = (arguments.experiment, arguments.planned, arguments.datasets)
    write_table(arguments.out_prefix, rows, scan_length_table(rows, *words))


if __name__ == "__main__":
    run(main)
