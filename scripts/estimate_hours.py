"""Estimate the GPU hours of a configuration before anything of it was run.

The seconds come from a table that benchmarks/methods.py printed, and are scaled by subjects, folds
and epochs. Once cells have been trained, `snakemake -n` tells more, from their own times.
"""

import argparse
import sys
from pathlib import Path

# Neither the package nor the workflow need be installed: both lie beside this folder.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from brio_core.system.cli import run
from brio_core.system.errors import BrioError
from brio_core.system.versions import ROOT

TIMES = ROOT / "docs" / "benchmarks" / "cuda-methods.md"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--configfile", type=Path, default=Path("config/paper.yaml"))
    parser.add_argument("--times", type=Path, default=TIMES, help="measured seconds (Markdown)")
    arguments = parser.parse_args()

    from workflow.planning.configuration import load
    from workflow.planning.files import ConfigurationError, read_yaml
    from workflow.planning.hours import read_times, report

    try:
        config = read_yaml(arguments.configfile)
        configuration = load(config, [arguments.configfile])
        times = read_times(arguments.times)
    except ConfigurationError as error:
        raise BrioError(str(error)) from None
    results = Path(configuration.config["results"])
    print(report(configuration, times, results, str(arguments.configfile)))


if __name__ == "__main__":
    run(main)
