"""Label means of one image: our streaming reader against nilearn's masker.

Each reader runs in a process of its own, so that its memory is its own; both work on the same file,
one after the other.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

SHAPE, ROIS = (61, 73, 61), 116
READERS = ("masker", "stream")


def make_files(folder: Path, frames: int) -> None:
    """An image of noise in an ellipsoid, and ``ROIS`` labels of unequal size within it."""
    import nibabel

    draw = np.random.default_rng(0)
    axes = (np.linspace(-1, 1, size) for size in SHAPE)
    place = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    inside = (place**2).sum(-1) < 0.8
    seeds = place[inside][draw.choice(inside.sum(), ROIS, replace=False)]
    labels = np.zeros(SHAPE, np.int16)
    distance = ((place[inside][:, None] - seeds) ** 2).sum(-1)
    labels[inside] = distance.argmin(1) + 1
    values = np.zeros((*SHAPE, frames), np.float32)
    values[inside] = 1000 + 30 * draw.standard_normal((inside.sum(), frames), np.float32)
    affine = np.diag([3.0, 3.0, 3.0, 1.0])
    nibabel.save(nibabel.Nifti1Image(values, affine), folder / "bold.nii.gz")
    nibabel.save(nibabel.Nifti1Image(labels, affine), folder / "labels.nii.gz")


def measure(folder: Path, reader: str) -> None:
    """Print seconds and memory beyond the imports, and keep the means."""
    import nibabel
    from nilearn.maskers import NiftiLabelsMasker

    from brio_core.cohorts.atlases.atlas import read_atlas
    from brio_core.cohorts.readers.images import Extractor

    bold, labels = folder / "bold.nii.gz", folder / "labels.nii.gz"

    def masker():
        fitted = NiftiLabelsMasker(nibabel.load(labels), standardize=None, verbose=0)
        return fitted.fit_transform(str(bold))

    def stream():
        return Extractor(read_atlas(labels, None, ROIS), None, {}, 2).label_means(bold)[0]

    before, begun = _peak(), time.perf_counter()
    means = {"masker": masker, "stream": stream}[reader]()
    seconds, megabytes = time.perf_counter() - begun, _peak() - before
    np.save(folder / f"{reader}.npy", means)
    print(json.dumps({"seconds": seconds, "megabytes": megabytes}))


def _peak() -> float:
    """Highest resident memory of this process so far, in MB.

    From the kernel's own page: what ``resource`` tells begins with the memory of the parent.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", nargs=2, metavar=("DIR", "READER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        measure(Path(arguments.child[0]), arguments.child[1])
        return
    found = {reader: [] for reader in READERS}
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name), arguments.frames)
        # In turn, so that whatever else the machine does meets both.
        for reader in READERS * arguments.repeats:
            command = [sys.executable, "-W", "ignore", __file__, "--child", name, reader]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[reader].append(json.loads(done.stdout.splitlines()[-1]))
        means = {reader: np.load(Path(name) / f"{reader}.npy") for reader in READERS}
    best = {reader: min(run["seconds"] for run in runs) for reader, runs in found.items()}
    most = {reader: max(run["megabytes"] for run in runs) for reader, runs in found.items()}
    difference = np.abs(means["stream"] / means["masker"] - 1).max()
    shape = " x ".join(map(str, (*SHAPE, arguments.frames)))
    print(
        f"CPU, {platform.machine()}, nilearn {version('nilearn')}, Python "
        f"{platform.python_version()}; {shape} float32 in .nii.gz, {ROIS} labels; "
        f"best of {arguments.repeats}\n"
    )
    print("| reader | seconds | times faster | MB above imports |\n| --- | --- | --- | --- |")
    for title, reader in (("nilearn's masker", "masker"), ("ours, volume by volume", "stream")):
        ratio = best["masker"] / best[reader]
        print(f"| {title} | {best[reader]:.2f} | {ratio:.1f} | {most[reader]:.0f} |")
    print(f"\nLargest relative difference between the two: {difference:.1e}")


if __name__ == "__main__":
    main()
