"""A cohort on disk and in memory: series.h5, fc.h5, participants.tsv.

A method never holds a :class:`Cohort`. It fits on a :class:`TrainView`, which is a copy of the
training rows of one fold: there is no way from it to another subject's scan or label.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor

from brio_core import sealed
from brio_core.connectivity import standardise
from brio_core.errors import BrioError
from brio_core.files import atomic
from brio_core.threads import one_thread

FORMAT_VERSION = 1
# Every chunk carries a checksum that is verified whenever it is read.
_STORED = {"compression": "gzip", "compression_opts": 1, "shuffle": True, "fletcher32": True}
PARTICIPANT_COLUMNS = (
    "subject", "site", "label", "age", "sex", "mean_fd", "tr", "group", "source",
)  # fmt: skip


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


@dataclass(frozen=True)
class Series:
    """Ragged ROI series: scan ``i`` is ``bold[offsets[i]:offsets[i + 1]]``, frames by ROIs."""

    subjects: tuple[str, ...]
    bold: np.ndarray
    offsets: np.ndarray
    rois: Rois
    provenance: dict

    def __len__(self) -> int:
        return len(self.subjects)

    def scan(self, index: int) -> np.ndarray:
        """The frames of one subject."""
        return self.bold[self.offsets[index] : self.offsets[index + 1]]

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


@contextmanager
def _open(path: str | Path, kind: str) -> Iterator[h5py.File]:
    """A file of ours for reading, by as many processes as like; what is wrong with it is named."""
    sealed.check(path)
    try:
        store = h5py.File(path, "r", locking="best-effort")
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None
    except OSError as error:
        what = "is cut off" if "truncated" in str(error) else "is not a readable HDF5 file"
        raise BrioError(f"{path} {what}; delete it and run the workflow again") from None
    with store:
        if (store.attrs.get("format"), store.attrs.get("version")) != (kind, FORMAT_VERSION):
            raise BrioError(
                f"{path} was not written as {kind} version {FORMAT_VERSION}; "
                "delete it and run the workflow again"
            )
        try:
            yield store
        except (OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise BrioError(
                f"{path} is damaged ({error}); delete it and run the workflow again"
            ) from None


def _strings(store: h5py.File, name: str) -> tuple[str, ...]:
    return tuple(store[name].asstr()[:].tolist())


def read_series(path: str | Path) -> Series:
    """Read series.h5 into memory."""
    with _open(path, "brio-series") as store:
        rois = Rois(
            _strings(store, "roi_name"), store["roi_centroid"][:], _strings(store, "roi_hemisphere")
        )
        series = Series(
            _strings(store, "subject"),
            store["bold"][:],
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
            fc[index] = matrix


def read_fc(path: str | Path) -> tuple[tuple[str, ...], np.ndarray]:
    """Subjects and FC matrices (N, P, P) of fc.h5."""
    with _open(path, "brio-fc") as store:
        subjects, fc = _strings(store, "subject"), store["fc"][:]
        if len(fc) != len(subjects):
            raise ValueError("its parts do not fit together")
        return subjects, fc


def read_table(path: str | Path):
    """A tab-separated table as text (``n/a`` stays text), or a sentence that says what is wrong."""
    import pandas as pd

    try:
        return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BrioError(f"{path} is not a tab-separated table ({error})") from None


def read_participants(path: str | Path):
    """participants.tsv with integer labels."""
    table = read_table(path)
    missing = [column for column in PARTICIPANT_COLUMNS if column not in table.columns]
    if missing:
        raise BrioError(f"{path} has no column {missing[0]!r}; make it again with the cohort rule")
    cut_off = ~table["label"].isin(["0", "1"]) | (table["source"] == "") | table.isna().any(axis=1)
    if cut_off.any():
        raise BrioError(
            f"{path} is damaged at subject {table['subject'][cut_off].iloc[0]}; delete it and run "
            "the workflow again"
        )
    table["label"] = table["label"].astype(int)
    return table


@dataclass(frozen=True)
class TrainView:
    """What a method may see of one fold while it fits: the training subjects and nothing else.

    ``site`` counts the training sites of the fold from 0, in alphabetical order. Of the inputs only
    those that the method needs are there; ``bold`` is zero beyond ``frames``. A path method whose
    features do not depend on the fold gets its ``features`` in place of the inputs, computed once
    for all folds. ``shared`` is what :meth:`Method.share` found out for the fold.
    """

    site: Tensor
    label: Tensor
    n_sites: int
    n_rois: int
    fc: Tensor | None = None
    bold: Tensor | None = None
    frames: Tensor | None = None
    covariates: Tensor | None = None
    row: Tensor | None = None
    rois: Rois | None = None
    features: dict[str, Tensor] | None = None
    shared: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Cohort:
    """All subjects of a cohort, for the trainer and the diagnostics."""

    name: str
    subjects: tuple[str, ...]
    site: np.ndarray
    fc: np.ndarray
    series: Series
    covariates: np.ndarray

    @classmethod
    def load(cls, folder: str | Path) -> "Cohort":
        """Read participants.tsv, series.h5 and fc.h5 of one folder and check that they agree."""
        folder = Path(folder)
        table = read_participants(folder / "participants.tsv")
        series = read_series(folder / "series.h5")
        fc_subjects, fc = read_fc(folder / "fc.h5")
        subjects = tuple(table["subject"])
        for name, other in (("series.h5", series.subjects), ("fc.h5", fc_subjects)):
            if other != subjects:
                raise BrioError(
                    f"{folder / name} and {folder / 'participants.tsv'} list different subjects; "
                    "run the workflow again so that both are made from the same cohort"
                )
        return cls(folder.name, subjects, table["site"].to_numpy(), fc, series, _covariates(table))

    @cached_property
    def padded_bold(self) -> np.ndarray:
        """Series standardised within each scan, padded with zeros to (N, T_max, P)."""
        padded = np.zeros((len(self.subjects), int(self.series.frames.max()), self.fc.shape[-1]),
                          np.float32)  # fmt: skip
        with one_thread():
            for index in range(len(self.subjects)):
                scan = torch.as_tensor(self.series.scan(index)).double()
                padded[index, : len(scan)] = standardise(scan).numpy()
        return padded


def _covariates(table) -> np.ndarray:
    """Age, sex (1 = male) and mean framewise displacement as float32; unknown values are NaN."""
    import pandas as pd

    male = {"m": 1.0, "male": 1.0, "1": 1.0, "f": 0.0, "female": 0.0, "2": 0.0, "0": 0.0}
    columns = [
        pd.to_numeric(table["age"], errors="coerce"),
        table["sex"].str.lower().map(male),
        pd.to_numeric(table["mean_fd"], errors="coerce"),
    ]
    return np.stack([column.to_numpy(np.float32) for column in columns], 1)
