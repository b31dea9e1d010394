"""Scores of the runs of one cohort and protocol: one row per variant, with 95 % intervals."""

import argparse
from pathlib import Path

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", nargs="+", required=True, metavar="DIR", help="run folders")
    parser.add_argument("--experiment", required=True, help="name written to each row")
    parser.add_argument(
        "--ensembles", type=cli.json_argument, help="JSON: label and members of ensembles, by name"
    )
    parser.add_argument("--out", required=True, help="CSV, one row per variant")
    parser.add_argument("--sites", help="CSV, one row per variant and test fold")
    parser.add_argument("--records", help="JSON, when and where each run was trained")
    parser.add_argument("--split", type=Path, help="JSON; where it is there, runs must follow it")
    arguments = parser.parse_args()

    from brio_core.reporting.results import read_runs
    from brio_core.reporting.summary import summarise
    from brio_core.system.files import write_json, write_text

    rows, folds = summarise(
        arguments.runs, arguments.experiment, arguments.ensembles, arguments.split
    )
    if arguments.sites:
        write_text(arguments.sites, folds.to_csv(index=False))
    if arguments.records:
        write_json(arguments.records, read_runs(arguments.runs))
    write_text(arguments.out, rows.to_csv(index=False))


if __name__ == "__main__":
    cli.run(main)
