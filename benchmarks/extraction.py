"""Label means of one image: our streaming reader against nilearn's masker.

Each reader runs in a process of its own, so that its memory is its own; both work on the same file,
one after the other.
"""

import json
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import nibabel
import numpy as np
from common import argument_parser, begin, peak_memory, table
from nilearn.maskers import NiftiLabelsMasker

from brio_core.cohorts.atlases.atlas import read_atlas
from brio_core.cohorts.readers.images import Extractor

SHAPE, ROIS = (61, 73, 61), 116
READERS = {"masker": "nilearn's masker", "stream": "ours, volume by volume"}


def make_files(folder: Path, frames: int) -> None:
    """An image of noise in an ellipsoid, and ``ROIS`` labels of unequal size within it."""
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
    bold, labels = folder / "bold.nii.gz", folder / "labels.nii.gz"
    before, begun = peak_memory(), time.perf_counter()
    if reader == "masker":
        masker = NiftiLabelsMasker(nibabel.load(labels), standardize=None, verbose=0)
        means = masker.fit_transform(str(bold))
    else:
        means = Extractor(read_atlas(labels, None, ROIS), None, {}, 2).label_means(bold)[0]
    seconds, megabytes = time.perf_counter() - begun, (peak_memory() - before) / 1e6
    np.save(folder / f"{reader}.npy", means)
    print(json.dumps([seconds, megabytes]))


def main(frames: int, repeats: int) -> None:
    found = {reader: [] for reader in READERS}
    with tempfile.TemporaryDirectory() as name:
        make_files(Path(name), frames)
        # In turn, so that whatever else the machine does meets both.
        for reader in [*READERS] * repeats:
            command = [sys.executable, "-W", "ignore", __file__, "--child", name, reader]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found[reader].append(json.loads(done.stdout.splitlines()[-1]))
        means = {reader: np.load(Path(name) / f"{reader}.npy") for reader in READERS}
    best = {reader: min(seconds for seconds, _ in runs) for reader, runs in found.items()}
    rows = []
    for reader, title in READERS.items():
        most = max(megabytes for _, megabytes in found[reader])
        ratio = best["masker"] / best[reader]
        rows.append((title, f"{best[reader]:.2f}", f"{ratio:.1f}", f"{most:.0f}"))
    shape = " x ".join(map(str, (*SHAPE, frames)))
    about = f"; {shape} float32 in .nii.gz, {ROIS} labels; best of {repeats}"
    begin("extraction", "cpu", f", nilearn {version('nilearn')}{about}")
    print(table(("reader", "seconds", "times faster", "MB above imports"), rows))
    difference = np.abs(means["stream"] / means["masker"] - 1).max()
    print(f"\nLargest relative difference between the two: {difference:.1e}")


if __name__ == "__main__":
    PARSER = argument_parser(__doc__)
    PARSER.add_argument("--frames", type=int, default=200)
    PARSER.add_argument("--repeats", type=int, default=5)
    PARSER.add_argument("--child", nargs=2, metavar=("DIR", "READER"), help="time one reader")
    ARGUMENTS = PARSER.parse_args()
    if ARGUMENTS.child:
        measure(Path(ARGUMENTS.child[0]), ARGUMENTS.child[1])
    else:
        main(ARGUMENTS.frames, ARGUMENTS.repeats)
