"""series.h5 and fc.h5: written once, sealed, and read subject by subject when asked for.

A cohort may be larger than memory, so an opened file hands out tables that read on demand.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from brio_core.system import sealed
from brio_core.system.errors import MAYBE_OURS, BrioError
from brio_core.system.files import atomic, digest
from brio_core.system.rows import Rows

FORMAT_VERSION = 1
COHORT_FILES = ("participants.tsv", "series.h5", "fc.h5")
# Every chunk carries a checksum that is verified whenever it is read.
_STORED = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}


@dataclass(frozen=True)
class Rois:
    """The regions of a parcellation; unknown centroids are NaN, unknown hemispheres ``n/a``."""

    names: tuple[str, ...]
    centroids: np.ndarray
    hemispheres: tuple[str, ...]

    @classmethod
    def named(cls, names: Iterable[str]) -> "Rois":
        """Regions of which only the names are known."""
        names = tuple(names)
        unknown = np.full((len(names), 3), np.nan, np.float32)
        return cls(names, unknown, ("n/a",) * len(names))

    def __len__(self) -> int:
        return len(self.names)

    def at(self, places: np.ndarray) -> "Rois":
        """Some of the regions."""
        names, sides = ([one[place] for place in places] for one in (self.names, self.hemispheres))
        return Rois(tuple(names), self.centroids[places], tuple(sides))


@dataclass(frozen=True)
class Series:
    """Ragged ROI series: scan ``i`` is ``bold[offsets[i]:offsets[i + 1]]``, frames by ROIs."""

    subjects: tuple[str, ...]
    bold: np.ndarray | Rows
    offsets: np.ndarray
    rois: Rois
    provenance: dict

    def __len__(self) -> int:
        return len(self.subjects)

    def scan(self, index: int) -> np.ndarray:
        """The frames of one subject."""
        return self.bold[self.offsets[index] : self.offsets[index + 1]]

    def scans(self, rows: Sequence[int]) -> Rows:
        """Some subjects' scans, each of its own length, read one by one when asked for."""
        return Rows(lambda place: self.scan(rows[place]), (len(rows),))

    @property
    def frames(self) -> np.ndarray:
        """Frames per subject."""
        return np.diff(self.offsets)

    def require_frames(self, least: int, method: str) -> None:
        """Raise if a scan is shorter than a method can read."""
        short = np.flatnonzero(self.frames < least)
        if len(short):
            raise BrioError(
                f"subject {self.subjects[short[0]]} has {self.frames[short[0]]} frames, but "
                f"{method} needs {least}; leave such scans out with 'min_frames' of the dataset"
            )


def _stored_rows(path: str | Path, dataset: h5py.Dataset) -> Rows:
    """The rows of a dataset, read when asked for; the file stays open."""

    def read(rows: int | slice | Sequence[int] | np.ndarray) -> np.ndarray:
        with _damage_named(path):
            if isinstance(rows, int | np.integer | slice):
                return dataset[rows]
            found = np.empty((len(rows), *dataset.shape[1:]), dataset.dtype)
            for place, row in enumerate(rows):
                dataset.read_direct(found, int(row), place)
            return found

    return Rows(read, dataset.shape, dataset.dtype)


def write_series(
    path: str | Path,
    subjects: Iterable[str],
    scans: Iterable[np.ndarray],
    rois: Rois,
    provenance: dict,
) -> None:
    """Write series.h5; ``scans`` are (frames, ROIs) arrays in the order of ``subjects``.

    ``provenance`` may state the ``units`` of the series.
    """
    subjects = list(subjects)
    strings = h5py.string_dtype()
    with atomic(path) as temporary, sealed.create(temporary) as store:
        store.attrs.update(format="brio-series", version=FORMAT_VERSION)
        store.attrs["provenance"] = json.dumps(provenance, sort_keys=True)
        # A scan of usual length lies in one or two chunks: reading a subject reads little more.
        bold = store.create_dataset(
            "bold", (0, len(rois)), "f4", maxshape=(None, len(rois)), chunks=(256, len(rois)),
            **_STORED,
        )  # fmt: skip
        bold.attrs.update(
            axes="frames by ROIs", dtype="float32", units=provenance.get("units", "arbitrary")
        )
        offsets = [0]
        for scan in scans:
            store.check_disk()
            bold.resize(offsets[-1] + len(scan), axis=0)
            bold[offsets[-1] :] = scan
            offsets.append(offsets[-1] + len(scan))
        if len(offsets) != len(subjects) + 1:
            raise ValueError("as many scans as subjects are needed")
        store["offsets"] = np.asarray(offsets, np.int64)
        store.create_dataset("subject", data=subjects, dtype=strings)
        store.create_dataset("roi_name", data=list(rois.names), dtype=strings)
        store["roi_centroid"] = rois.centroids.astype(np.float32)
        store["roi_centroid"].attrs["units"] = "mm"
        store.create_dataset("roi_hemisphere", data=list(rois.hemispheres), dtype=strings)


def open_store(path: str | Path, kind: str) -> h5py.File:
    """A file of ours for reading, by as many processes as like; what is wrong with it is named."""
    sealed.check(path)
    try:
        store = h5py.File(path, "r", locking="best-effort")
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the workflow, which makes it") from None
    except OSError as error:
        what = "is cut off" if "truncated" in str(error) else "is not a readable HDF5 file"
        raise BrioError(f"{path} {what}; {MAYBE_OURS}") from None
    if (store.attrs.get("format"), store.attrs.get("version")) != (kind, FORMAT_VERSION):
        raise BrioError(f"{path} was not written as {kind} version {FORMAT_VERSION}; {MAYBE_OURS}")
    return store


@contextmanager
def _damage_named(path: str | Path) -> Iterator[None]:
    try:
        yield
    except (OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise BrioError(
            f"{path} is damaged ({error}); delete it and run the workflow again"
        ) from None


def _strings(store: h5py.File, name: str) -> tuple[str, ...]:
    return tuple(store[name].asstr()[:].tolist())


def read_series(path: str | Path) -> Series:
    """What series.h5 holds; its scans are read when asked for."""
    store = open_store(path, "brio-series")
    with _damage_named(path):
        rois = Rois(
            _strings(store, "roi_name"), store["roi_centroid"][:], _strings(store, "roi_hemisphere")
        )
        series = Series(
            _strings(store, "subject"),
            _stored_rows(path, store["bold"]),
            store["offsets"][:],
            rois,
            json.loads(store.attrs["provenance"]),
        )
        if series.bold.shape != (series.offsets[-1], len(rois)) or len(series.frames) != len(
            series
        ):
            raise ValueError("its parts do not fit together")
        return series


def write_fc(
    path: str | Path,
    subjects: Iterable[str],
    matrices: Iterable[np.ndarray],
    provenance: dict | None = None,
) -> None:
    """Write fc.h5: one Fisher-z matrix per subject, chunked by subject."""
    subjects = list(subjects)
    with atomic(path) as temporary, sealed.create(temporary) as store:
        store.attrs.update(format="brio-fc", version=FORMAT_VERSION)
        store.attrs["provenance"] = json.dumps(provenance or {}, sort_keys=True)
        store.create_dataset("subject", data=subjects, dtype=h5py.string_dtype())
        for index, matrix in enumerate(matrices):
            if index == 0:
                shape = (len(subjects), *matrix.shape)
                fc = store.create_dataset("fc", shape, "f4", chunks=(1, *shape[1:]), **_STORED)
                fc.attrs.update(
                    axes="subjects by ROIs by ROIs",
                    dtype="float32",
                    units="Fisher z of Pearson's r",
                )
            store.check_disk()
            fc[index] = matrix


def read_fc(path: str | Path) -> tuple[tuple[str, ...], Rows]:
    """Subjects and FC matrices (N, P, P) of fc.h5, which are read when asked for."""
    store = open_store(path, "brio-fc")
    with _damage_named(path):
        subjects, fc = _strings(store, "subject"), _stored_rows(path, store["fc"])
        if fc.shape[0] != len(subjects) or len(fc.shape) != 3:
            raise ValueError("its parts do not fit together")
        return subjects, fc


def input_checksums(cohort_dir: Path, block_length: Path | None = None) -> dict[str, str]:
    """What training and diagnostics read besides the split, whose checksum has its own place."""
    files = {name: Path(cohort_dir) / name for name in COHORT_FILES}
    if block_length is not None:
        files["block_length"] = Path(block_length)
    return {name: checksum(path) for name, path in files.items()}


def checksum(path: Path) -> str:
    """The checksum of a file; large ones carry theirs, so that they are not read for it."""
    try:
        if path.suffix == ".h5":
            return sealed.checksum(path)
        return digest(path)
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the workflow, which makes it") from None
