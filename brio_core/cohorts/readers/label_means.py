"""Label means of a 4D image, one volume at a time.

The file is read once and in order, so a compressed image is decompressed once and never held in
memory as a whole. nilearn's masker, which loads the image, is the reference.
"""

import math
import zlib
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np

from brio_core.cohorts.scan import Unusable

try:
    from isal.igzip import open as open_gzip
    from isal.isal_zlib import error as InflateError
except ImportError:  # the same with Python's own, at half the speed
    from gzip import open as open_gzip

    InflateError = zlib.error

# Volumes of 0.4 mm have fewer voxels, and no scan as many frames.
_MOST_VOXELS, _MOST_FRAMES = 1 << 27, 1 << 20
# Voxels of microscopes and of whole bodies, in mm, and the way from one corner to the other.
_SMALLEST_VOXEL, _LARGEST_PLACE = 1e-3, 1e5
# No file is compressed more by gzip.
_MOST_GZIP = 1100

# What reading a damaged or foreign image can raise.
IMAGE_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    MemoryError,
    zlib.error,
    InflateError,
    nibabel.filebasedimages.ImageFileError,
    nibabel.spatialimages.HeaderDataError,
)


def open_image(path: Path) -> nibabel.Nifti1Image:
    """The header of a 4D image; its data are not read yet."""
    try:
        image = nibabel.load(path)
    except IMAGE_ERRORS as error:
        raise unreadable(path, error) from None
    if image.ndim != 4:
        raise Unusable(f"unreadable image: {path.name} has {image.ndim} dimensions instead of 4")
    if wrong := _impossible(path, image):
        raise unreadable(path, ValueError(wrong))
    return image


def _impossible(path: Path, image: nibabel.Nifti1Image) -> str:
    """What a header declares and no scan has, so that nothing is made of it; or an empty text."""
    *grid, frames = map(int, image.shape)
    voxels = math.prod(grid)
    if min(image.shape) < 1 or voxels > _MOST_VOXELS or frames > _MOST_FRAMES:
        return f"its header declares {' × '.join(map(str, image.shape))} voxels and frames"
    places = np.asarray(image.affine, float)
    with np.errstate(all="ignore"):
        finite = np.isfinite(places).all() and np.abs(places).max() <= _LARGEST_PLACE
        sizes = np.linalg.svd(places[:3, :3], compute_uv=False) if finite else [0]
    if min(sizes) < _SMALLEST_VOXEL:
        return "its header does not say where its voxels are"
    size, declared = path.stat().st_size, voxels * frames * image.get_data_dtype().itemsize
    declared += max(int(getattr(image.dataobj, "offset", 0)), 0)
    if declared > size * (_MOST_GZIP if path.suffix == ".gz" else 1):
        return f"its header declares {declared:,} bytes, and the file has {size:,}"
    return ""


def unreadable(path: Path, error: Exception) -> Unusable:
    """The reason against an image that cannot be read."""
    return Unusable(f"unreadable image: {path.name} ({str(error) or type(error).__name__})")


def can_stream(image: nibabel.Nifti1Image) -> bool:
    """Whether the image is one NIfTI file of real numbers, as practically all are."""
    return isinstance(image, nibabel.Nifti1Image) and image.get_data_dtype().kind in "fiu"


@dataclass(frozen=True)
class LabelMeans:
    """Which voxels of a grid belong to which label, in the order of the file.

    ``voxels`` are sorted by label; ``starts`` says where each label begins, ``counts`` how many
    voxels it has.
    """

    voxels: np.ndarray
    starts: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, labels: np.ndarray) -> "LabelMeans":
        """For an array of labels on the grid of the images; 0 is background."""
        flat = labels.ravel(order="F")
        inside = np.flatnonzero(flat)
        voxels = inside[np.argsort(flat[inside], kind="stable")]
        _, starts, counts = np.unique(flat[voxels], return_index=True, return_counts=True)
        return cls(voxels, starts, counts)

    def read(self, path: Path, image: nibabel.Nifti1Image) -> tuple[np.ndarray, np.ndarray]:
        """Means (frames, labels), and which frames are finite in all labelled voxels."""
        proxy = image.dataobj
        size = int(np.prod(image.shape[:3])) * proxy.dtype.itemsize
        sums = np.empty((image.shape[3], len(self.starts)))
        buffer = bytearray(size)
        volume = np.frombuffer(buffer, proxy.dtype)
        opened = open_gzip if path.suffix == ".gz" else open
        try:
            with opened(path, "rb") as stream:
                _fill(memoryview(bytearray(proxy.offset)), stream)
                for frame in sums:
                    _fill(memoryview(buffer), stream)
                    np.add.reduceat(volume[self.voxels], self.starts, dtype=float, out=frame)
                # Only the end of a compressed file tells whether all of it is as it was written.
                while stream.read(1 << 20):
                    pass
        except IMAGE_ERRORS as error:
            raise unreadable(path, error) from None
        means = sums / self.counts * proxy.slope + proxy.inter
        # A sum is finite if and only if all its voxels are.
        return means, np.isfinite(means).all(axis=1)


def _fill(view: memoryview, stream) -> None:
    while view:
        count = stream.readinto(view)
        if not count:
            raise EOFError("the file ends before its last volume")
        view = view[count:]
