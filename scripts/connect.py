"""Compute the Fisher-z connectivity of every subject of a cohort."""

import argparse
from pathlib import Path

from brio_core.system.cli import run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()

    from importlib.metadata import version

    import numpy as np

    from brio_core import __version__
    from brio_core.cohorts.stores import read_series, write_fc
    from brio_core.connectivity.fisher_z import fisher_z_connectivity

    series = read_series(arguments.series)
    scans = (series.scan(index).astype(np.float64) for index in range(len(series)))
    provenance = {
        "brio": __version__,
        "series": series.provenance,
        "rule": "Pearson's r over frames that are finite in all ROIs, clipped, Fisher z; "
        "zero diagonal, zero rows for constant ROIs",
        "versions": {name: version(name) for name in ("torch", "numpy", "h5py")},
    }
    fc = (fisher_z_connectivity(scan) for scan in scans)
    write_fc(arguments.out, series.subjects, fc, provenance)
    print(f"connectivity of {len(series)} subjects and {len(series.rois)} ROIs")


if __name__ == "__main__":
    run(main)
