"""A label atlas: an image of region numbers and the table of their names."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import nibabel
import numpy as np

from brio_core.cohorts.atlases.regions import Regions, read_labels, shown, with_sides
from brio_core.cohorts.stores import Rois
from brio_core.system.errors import BrioError


@dataclass(frozen=True)
class Atlas:
    """Labels ascend in ``regions``, which is the order of the columns of every extracted series."""

    image: nibabel.Nifti1Image
    regions: Regions

    @property
    def checksum(self) -> str:
        """SHA-256 of the labels and of where they are."""
        labels = np.ascontiguousarray(self.image.dataobj, np.int64)
        return hashlib.sha256(labels.tobytes() + self.image.affine.tobytes()).hexdigest()

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
        return np.setdiff1d(self.regions.codes, _labels_of(resampled)).tolist()


def read_atlas(image_path: Path, names_path: Path | None, expected: int) -> Atlas:
    """Read an atlas and check that image, names and the expected number of ROIs agree."""
    image, labels = _load(image_path)
    if names_path is None:
        return _atlas(image, Regions(image_path, _named(labels, {}), labels), expected)
    named = read_labels(names_path)
    if named.codes is None:
        raise BrioError(
            f"{names_path} has no column 'index' (or 'code', or 'value'); beside an atlas image, "
            "names need the numbers that they have in it"
        )
    _check_same(image_path, names_path, labels, named.codes)
    return _atlas(image, replace(named, path=image_path), expected)


def fetch_atlas(wanted: dict, cache: Path, expected: int, key: str = "source.atlas") -> Atlas:
    """An atlas of labels by nilearn's ``fetch_atlas_<name>``, from ``cache`` if it is there.

    ``wanted`` holds ``fetch`` (the name), ``options`` of the fetcher, and ``volume``, which
    chooses one of several parcellations in a 4D file, counted from 0. Errors call it ``key``.
    """
    from nilearn import datasets

    name, options = wanted["fetch"], wanted.get("options", {})
    fetcher = getattr(datasets, f"fetch_atlas_{name}", None)
    if fetcher is None:
        known = [key.removeprefix("fetch_atlas_") for key in dir(datasets) if "fetch_atlas" in key]
        raise BrioError(f"nilearn has no atlas {name!r}; choose one of {', '.join(known)}")
    try:
        found = fetcher(data_dir=str(cache), verbose=0, **options)
    except (TypeError, ValueError) as error:
        raise BrioError(
            f"{key}.options do not suit atlas {name!r} ({error}); give what nilearn's "
            f"fetch_atlas_{name} takes"
        ) from None
    except OSError as error:
        raise BrioError(
            f"atlas {name!r} could not be downloaded into {cache} ({error}); connect to the "
            "network once, or name a label image of your own in its place"
        ) from None
    table = found.get("lut")
    known = dict(zip(table["index"].astype(int), table["name"])) if table is not None else {}
    maps = found.maps if isinstance(found.maps, nibabel.Nifti1Image) else Path(found.maps)
    image, labels = _load(maps, wanted.get("volume"), name, key)
    return _atlas(image, Regions(Path(name), _named(labels, known), labels), expected)


def _load(source, volume: int | None = None, name: str = "", key: str = "source.atlas") -> tuple:
    shown_as = source if isinstance(source, Path) else f"of {name}"
    try:
        image = nibabel.load(source) if isinstance(source, Path) else source
        if volume is not None:
            image = image.slicer[..., volume]
        if image.ndim != 3:
            raise BrioError(
                f"atlas image {shown_as} has {image.ndim} dimensions instead of 3; "
                f"save one volume of labels, or choose one with {key}.volume"
            )
        return image, _labels_of(image)
    except (
        OSError, EOFError, ValueError, IndexError, nibabel.filebasedimages.ImageFileError,
    ) as error:  # fmt: skip
        raise BrioError(f"atlas image {shown_as} cannot be read ({error}); replace it") from None


def _atlas(image: nibabel.Nifti1Image, regions: Regions, expected: int) -> Atlas:
    """The atlas with the places and hemispheres that the table of names does not give."""
    rois = regions.rois
    if len(rois) != expected:
        raise BrioError(
            f"atlas image {regions.path} has {len(rois)} labels, but rois.expected is "
            f"{expected}; correct one of them"
        )
    if np.isnan(rois.centroids).all():
        rois = replace(rois, centroids=_centroids(image, regions.codes))
    return Atlas(image, replace(regions, rois=with_sides(rois)))


def _named(labels: np.ndarray, known: dict[int, str]) -> Rois:
    return Rois.named(str(known.get(int(label), f"ROI {label}")) for label in labels)


def _centroids(image: nibabel.Nifti1Image, labels: np.ndarray) -> np.ndarray:
    """Mean position of the voxels of each label, in mm."""
    volume = np.asanyarray(image.dataobj)
    voxels = np.argwhere(volume != 0)
    which = np.searchsorted(labels, volume[tuple(voxels.T)].astype(int))
    sums = np.stack([np.bincount(which, axis, len(labels)) for axis in voxels.T], 1)
    means = sums / np.bincount(which, minlength=len(labels))[:, None]
    return nibabel.affines.apply_affine(image.affine, means).astype(np.float32)


def _labels_of(image: nibabel.Nifti1Image) -> np.ndarray:
    values = np.unique(np.asanyarray(image.dataobj))
    if not np.equal(np.mod(values, 1), 0).all():
        raise ValueError("its values are not whole numbers")
    return values[values != 0].astype(int)


def _check_same(image_path: Path, names_path: Path, labels: np.ndarray, named: np.ndarray) -> None:
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
