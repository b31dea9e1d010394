"""Estimate the GPU hours of a configuration before anything of it was run.

The seconds come from a table that benchmarks/methods.py printed, and are scaled by subjects, folds
and epochs. Once runs have been trained, `snakemake -n` tells more, from their own times.
"""

import argparse
import sys
from pathlib import Path

# Neither the package nor the workflow need be installed: both lie beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from brio_core.system.cli import run
from brio_core.system.files import ROOT

TIMES = ROOT / "docs" / "benchmarks" / "cuda-methods.md"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configfile", type=Path, default=Path("config/paper.yaml"))
    parser.add_argument("--times", type=Path, default=TIMES, help="measured seconds (Markdown)")
    arguments = parser.parse_args()

    from workflow.planning.files import read_yaml
    from workflow.planning.hours import read_times, report
    from workflow.planning.loading import load

    configuration = load(read_yaml(arguments.configfile), [arguments.configfile])
    times = read_times(arguments.times)
    results = Path(configuration.config["results"])
    print(report(configuration, times, results, str(arguments.configfile)))


if __name__ == "__main__":
    run(main)
