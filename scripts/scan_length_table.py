"""AUC of trained models when test scans are cut short."""

import argparse

from brio_core import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--diagnostics", nargs="+", required=True, metavar="DIR")
    parser.add_argument(
        "--experiment", type=cli.json_argument, required=True, help="JSON with title and caption"
    )
    parser.add_argument(
        "--planned", type=cli.json_argument, required=True, help="JSON: settings that belong there"
    )
    parser.add_argument(
        "--datasets", type=cli.json_argument, default={}, help="JSON: settings by cohort (title)"
    )
    parser.add_argument("--out-prefix", required=True, help="writes .csv .md .tex .json")
    arguments = parser.parse_args()

    from brio_core.reporting.diagnostics import read_diagnostics
    from brio_core.reporting.scan_length import scan_length_rows, scan_length_table
    from brio_core.reporting.writing import write_table

    rows = scan_length_rows(read_diagnostics(arguments.diagnostics))
    words = (arguments.experiment, arguments.planned, arguments.datasets)
    write_table(arguments.out_prefix, rows, scan_length_table(rows, *words))


if __name__ == "__main__":
    cli.run(main)
