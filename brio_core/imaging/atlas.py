"""A label atlas: an image of region numbers and the table of their names."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import nibabel
import numpy as np

from brio_core.errors import BrioError
from brio_core.imaging.tables import MISSING, read_table


@dataclass(frozen=True)
class Atlas:
    """``labels`` ascend and are the order of the columns of every extracted series."""

    path: Path
    image: nibabel.Nifti1Image
    labels: np.ndarray
    names: tuple[str, ...]
    centroids: np.ndarray
    hemispheres: tuple[str, ...]

    @property
    def checksum(self) -> str:
        """SHA-256 of the image file."""
        return hashlib.sha256(self.path.read_bytes()).hexdigest()

    def on_grid(self, image: nibabel.Nifti1Image) -> nibabel.Nifti1Image:
        """The labels on the grid of ``image``: nearest neighbour, the data stay as they are."""
        from nilearn.image import resample_img

        if self.image.shape == image.shape[:3] and np.allclose(self.image.affine, image.affine):
            return self.image
        return resample_img(
            self.image,
            target_affine=image.affine,
            target_shape=image.shape[:3],
            interpolation="nearest",
        )

    def lost_labels(self, resampled: nibabel.Nifti1Image) -> list[int]:
        """Labels that have no voxel on another grid."""
        return np.setdiff1d(self.labels, _labels_of(resampled)).tolist()


def read_atlas(image_path: Path, names_path: Path | None, expected: int) -> Atlas:
    """Read an atlas and check that image, names and the expected number of ROIs agree."""
    try:
        image = nibabel.load(image_path)
        labels = _labels_of(image)
    except (OSError, EOFError, ValueError, nibabel.filebasedimages.ImageFileError) as error:
        raise BrioError(f"atlas image {image_path} cannot be read ({error}); replace it") from None
    if image.ndim != 3:
        raise BrioError(
            f"atlas image {image_path} has {image.ndim} dimensions instead of 3; "
            "save one volume of labels"
        )
    names, centroids, hemispheres = _read_names(image_path, names_path, labels)
    if len(labels) != expected:
        raise BrioError(
            f"atlas image {image_path} has {len(labels)} labels, but rois.expected is "
            f"{expected}; correct one of them"
        )
    return Atlas(image_path, image, labels, names, centroids, hemispheres)


def _labels_of(image: nibabel.Nifti1Image) -> np.ndarray:
    values = np.unique(np.asanyarray(image.dataobj))
    if not np.equal(np.mod(values, 1), 0).all():
        raise ValueError("its values are not whole numbers")
    return values[values != 0].astype(int)


def _read_names(image_path: Path, names_path: Path | None, labels: np.ndarray):
    unknown = np.full((len(labels), 3), np.nan, np.float32)
    if names_path is None:
        return tuple(f"ROI {label}" for label in labels), unknown, (MISSING,) * len(labels)
    table = read_table(names_path)
    for column in ("index", "name"):
        if column not in table.columns:
            raise BrioError(
                f"{names_path} has no column {column!r}; an atlas table needs index and name"
            )
    try:
        table["index"] = table["index"].astype(int)
    except ValueError as error:
        raise BrioError(
            f"column 'index' of {names_path} must hold the whole numbers of the atlas "
            f"image ({error})"
        ) from None
    table = table[table["index"] != 0].sort_values("index")
    _check_same(image_path, names_path, labels, table["index"].to_numpy())
    if {"x", "y", "z"} <= set(table.columns):
        text = table[["x", "y", "z"]].replace(MISSING, "nan")
        centroids = text.to_numpy().astype(np.float32)
    else:
        centroids = unknown
    has_side = "hemisphere" in table.columns
    hemispheres = tuple(table["hemisphere"]) if has_side else (MISSING,) * len(table)
    return tuple(table["name"]), centroids, hemispheres


def _check_same(image_path: Path, names_path: Path, labels: np.ndarray, named: np.ndarray) -> None:
    if len(np.unique(named)) != len(named):
        raise BrioError(f"{names_path} names one label twice; keep one row per label")
    absent, unnamed = np.setdiff1d(named, labels), np.setdiff1d(labels, named)
    if len(absent):
        raise BrioError(
            f"atlas image {image_path} does not hold the label(s) {shown(absent)} that "
            f"{names_path} names; choose the image and table of one atlas"
        )
    if len(unnamed):
        raise BrioError(
            f"{names_path} does not name the label(s) {shown(unnamed)} of atlas image "
            f"{image_path}; choose the image and table of one atlas"
        )


def shown(labels, most: int = 5) -> str:
    """The first few labels as text."""
    text = ", ".join(str(label) for label in list(labels)[:most])
    return text if len(labels) <= most else f"{text} and {len(labels) - most} more"
