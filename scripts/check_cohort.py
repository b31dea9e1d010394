"""Check a dataset file and the data it describes: read everything, change nothing.

Prints the inclusion table, the counts per site and reason, and every problem. The table of more
than 100 subjects is written to a file instead. Exit code 1 if the workflow could not run on this
cohort.
"""

import argparse
import sys
from pathlib import Path

# Neither the package nor the workflow need be installed: both lie beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from brio_core.system.cli import run

# A longer table would hide what is said after it.
LONGEST_TABLE = 100


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", type=Path, help="dataset file, such as my.yaml")
    parser.add_argument("--data-dir", default="data", help="the folder of all cohorts (data)")
    parser.add_argument("--split-seed", type=int, default=0, help="as in the configuration (0)")
    parser.add_argument("--table", type=Path, help="where to write a long table (check-COHORT.tsv)")
    arguments = parser.parse_args()

    from brio_core.cohorts.check import check_cohort
    from brio_core.cohorts.inclusion import COLUMNS
    from brio_core.cohorts.tables import write_table
    from workflow.planning.schema import read_dataset

    dataset = read_dataset(arguments.dataset)
    report = check_cohort(dataset, arguments.data_dir, arguments.split_seed)
    if arguments.dataset.stem != dataset["cohort"]:
        report.notes.append(
            f"to run it, save the file as config/datasets/{dataset['cohort']}.yaml, like its cohort"
        )
    if len(report.rows) <= LONGEST_TABLE:
        print(report.text())
    else:
        path = arguments.table or Path(f"check-{dataset['cohort']}.tsv")
        write_table(path, COLUMNS, report.rows)
        print(report.text(path))
    if report.errors:
        sys.exit(1)


if __name__ == "__main__":
    run(main)
