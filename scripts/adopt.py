"""Take over predictions of external code, after checking them against the split they were made for.

The CSV needs the columns subject, fold and logit (log-odds of class 1) with one row per test
subject of the split; further columns are ignored, and so are rows whose split is not test.
"""

import argparse
from pathlib import Path

from brio_core.system import cli


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predictions", type=Path, required=True, metavar="CSV")
    parser.add_argument("--split", dest="split_file", type=Path, required=True, metavar="JSON")
    parser.add_argument("--checksum", required=True, help="that of the split, or its beginning")
    parser.add_argument("--variant", required=True, help="short name, used in paths")
    parser.add_argument("--label", required=True, help="name in tables")
    parser.add_argument("--group", default="External predictions", help="block in tables")
    parser.add_argument("--seed", type=int, default=0, help="number of the repeat")
    parser.add_argument("--out-dir", type=Path, required=True)
    arguments = parser.parse_args()

    from brio_core.reporting.external import adopt

    adopt(**vars(arguments))


if __name__ == "__main__":
    cli.run(main)
