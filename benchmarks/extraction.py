"""Label means of one image: our streaming reader against nilearn's masker, time and memory."""

import tracemalloc
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import nibabel
import numpy as np
from common import argument_parser, begin, seconds, table
from nilearn.maskers import NiftiLabelsMasker

from brio_core.cohorts.atlases.atlas import read_atlas
from brio_core.cohorts.readers.images import Extractor

SHAPE, ROIS = (61, 73, 61), 116


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


def main(frames: int, repeats: int) -> None:
    rows, found = [], []
    with TemporaryDirectory() as name:
        folder = Path(name)
        bold, labels = folder / "bold.nii.gz", folder / "labels.nii.gz"
        make_files(folder, frames)
        masker = NiftiLabelsMasker(nibabel.load(labels), standardize=None, verbose=0)
        extractor = Extractor(read_atlas(labels, None, ROIS), None, {}, 2)
        for title, read in (
            ("nilearn's masker", lambda: masker.fit_transform(str(bold))),
            ("ours, volume by volume", lambda: extractor.label_means(bold)[0]),
        ):
            took = seconds(read, "cpu", repeats)
            tracemalloc.start()
            found.append(read())
            megabytes = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            rows.append((title, f"{took:.2f}", f"{megabytes:.0f}"))
    shape = " x ".join(map(str, (*SHAPE, frames)))
    about = f"; {shape} float32 in .nii.gz, {ROIS} labels; best of {repeats}"
    begin("extraction", "cpu", f", nilearn {version('nilearn')}{about}")
    print(table(("reader", "seconds", "peak MB"), rows))
    masked, streamed = found
    print(f"\nLargest relative difference of the two: {np.abs(streamed / masked - 1).max():.1e}")


if __name__ == "__main__":
    PARSER = argument_parser(__doc__)
    PARSER.add_argument("--frames", type=int, default=200)
    PARSER.add_argument("--repeats", type=int, default=5)
    ARGUMENTS = PARSER.parse_args()
    main(ARGUMENTS.frames, ARGUMENTS.repeats)
