"""Label means of one image: our streaming reader against nilearn's masker.

Each reader runs in a process of its own, so that its memory is its own; both work on the same file,
one after the other.
"""

import time
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

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


def measure(reader: str, folder: Path) -> tuple[float, float, np.ndarray]:
    """Seconds, megabytes beyond the imports, and the means that were found."""
    bold, labels = folder / "bold.nii.gz", folder / "labels.nii.gz"
    before, begun = peak_memory(), time.perf_counter()
    if reader == "masker":
        masker = NiftiLabelsMasker(nibabel.load(labels), standardize=None, verbose=0)
        means = masker.fit_transform(str(bold))
    else:
        means = Extractor(read_atlas(labels, None, ROIS), None, {}, 2).label_means(bold)[0]
    return time.perf_counter() - begun, (peak_memory() - before) / 1e6, means


def main(frames: int, repeats: int) -> None:
    found = {reader: [] for reader in READERS}
    processes = {"max_workers": 1, "mp_context": get_context("spawn"), "max_tasks_per_child": 1}
    with TemporaryDirectory() as name, ProcessPoolExecutor(**processes) as pool:
        make_files(Path(name), frames)
        # In turn, so that whatever else the machine does meets both.
        for reader in [*READERS] * repeats:
            found[reader].append(pool.submit(measure, reader, Path(name)).result())
    best = {reader: min(seconds for seconds, _, _ in runs) for reader, runs in found.items()}
    rows = []
    for reader, title in READERS.items():
        most = max(megabytes for _, megabytes, _ in found[reader])
        ratio = best["masker"] / best[reader]
        rows.append((title, f"{best[reader]:.2f}", f"{ratio:.1f}", f"{most:.0f}"))
    shape = " x ".join(map(str, (*SHAPE, frames)))
    about = f"; {shape} float32 in .nii.gz, {ROIS} labels; best of {repeats}"
    begin("extraction", "cpu", f", nilearn {version('nilearn')}{about}")
    print(table(("reader", "seconds", "times faster", "MB above imports"), rows))
    masker, stream = (found[reader][0][2] for reader in READERS)
    print(f"\nLargest relative difference between the two: {np.abs(stream / masker - 1).max():.1e}")


if __name__ == "__main__":
    PARSER = argument_parser(__doc__)
    PARSER.add_argument("--frames", type=int, default=200)
    PARSER.add_argument("--repeats", type=int, default=5)
    ARGUMENTS = PARSER.parse_args()
    main(ARGUMENTS.frames, ARGUMENTS.repeats)
