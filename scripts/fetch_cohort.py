"""Download an open cohort (ABIDE, source kind pcp) into the data folder.

What is there already is kept, and a call that was interrupted goes on where it ended.
"""

import argparse
import sys
from pathlib import Path

# The package need not be installed: it lies beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from brio_core.system.cli import run
from brio_core.system.errors import BrioError


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", type=Path, help="such as config/datasets/abide-cc200.yaml")
    parser.add_argument("--data-dir", default="data", help="the folder of all cohorts (data)")
    parser.add_argument("--attempts", type=int, default=5, help="how often a file is tried (5)")
    parser.add_argument("--wait", type=float, default=2.0, help="seconds before the second (2)")
    parser.add_argument("--url", help="another server with the project's files")
    arguments = parser.parse_args()

    from workflow.planning.schema import read_dataset

    dataset = read_dataset(arguments.dataset)
    if dataset["source"]["kind"] != "pcp":
        advice = dataset["how_to_get"].strip()
        raise BrioError(f"cohort {dataset['cohort']} cannot be downloaded by a program; {advice}")

    from brio_core.cohorts.readers.pcp import PcpReader
    from brio_core.cohorts.readers.pcp_download import download

    reader = PcpReader(dataset, arguments.data_dir)
    came, there = download(reader, arguments.attempts, arguments.wait, arguments.url)
    print(f"{came} scans downloaded, {there} were there; check them with scripts/check_cohort.py")


if __name__ == "__main__":
    run(main)
