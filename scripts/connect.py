"""Compute the Fisher-z connectivity of every subject of a cohort."""

import argparse
from pathlib import Path

from brio_core.cli import run


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    import numpy as np

    from brio_core.cohort import read_series, write_fc
    from brio_core.connectivity import fisher_z_connectivity

    series = read_series(arguments.series)
    scans = (series.scan(index).astype(np.float64) for index in range(len(series)))
    write_fc(arguments.out, series.subjects, (fisher_z_connectivity(scan) for scan in scans))
    print(f"connectivity of {len(series)} subjects and {len(series.rois)} ROIs")


if __name__ == "__main__":
    run(main)
