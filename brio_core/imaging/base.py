"""What every kind of source has in common."""

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brio_core.errors import BrioError


class Unusable(Exception):
    """One subject cannot be used; the text before the first colon is the kind of reason."""

    def __init__(self, reason: str, frames_before: int | None = None, frames: int | None = None):
        super().__init__(" ".join(reason.split()))
        self.frames_before = frames_before
        self.frames = frames


class AtlasMisfit(Unusable):
    """The atlas has labels without a voxel in an image: the fault of one of the two."""


@dataclass(frozen=True)
class Scan:
    """Cleaned ROI series (frames by ROIs, finite, constant ROIs zero) and how it came about."""

    series: np.ndarray
    frames_before: int
    constant_rois: int
    names: tuple[str, ...] = ()


def finite_frames(values: np.ndarray) -> np.ndarray:
    """Which frames are finite in every column; the others are dropped jointly."""
    return np.isfinite(values).all(axis=1)


def constant_columns(values: np.ndarray) -> np.ndarray:
    """Which columns do not vary beyond single precision."""
    if not len(values):
        return np.ones(values.shape[1], bool)
    return np.ptp(values, axis=0) <= 1e-6 * np.abs(values).max(axis=0)


class Source:
    """A folder of scans and the table that describes them.

    Parameters
    ----------
    dataset : dict
        The mapping of the dataset's YAML file.
    data_dir : path
        Where all cohorts lie; the cohort's own folder below it is ``source.folder``.
    """

    def __init__(self, dataset: dict, data_dir: str | Path):
        self.dataset = dataset
        self.settings = dataset["source"]
        self.data_dir = Path(data_dir)
        self.root = self.inside(self.data_dir, self.settings["folder"], "source.folder")

    @property
    def table_path(self) -> Path:
        """The table with one row per candidate subject."""
        raise NotImplementedError

    def table(self):
        """The rows of :attr:`table_path` as text, one per candidate subject."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise if something that all scans need is wrong."""

    def scan_path(self, row: dict) -> Path:
        """The scan of one row of :meth:`table`; raises :class:`Unusable` if there can be none."""
        raise NotImplementedError

    def repetition_time(self, path: Path) -> float | None:
        """Seconds between frames, where the scan's own files tell."""
        return None

    def read(self, path: Path, tr: float | None) -> Scan:
        """Read and clean one scan; raises :class:`Unusable` if that is impossible."""
        raise NotImplementedError

    def rois(self, names: tuple[str, ...]):
        """The regions of the series, given the names that the scans themselves carry."""
        from brio_core.cohort import Rois

        expected = self.dataset["rois"]["expected"]
        return Rois.named(names or [f"ROI {index + 1}" for index in range(expected)])

    def provenance(self) -> dict:
        """What the series depend on beside the dataset's settings."""
        return {}

    def need(self, path: Path) -> Path:
        """``path`` if it exists, else an error that says how to get the cohort's data."""
        if not path.exists():
            raise self.missing(f"{path} does not exist")
        return path

    def missing(self, what: str) -> BrioError:
        """The error for a cohort whose data are not there."""
        advice = self.dataset.get("how_to_get", "see config/README.md").strip()
        return BrioError(
            f"the data of cohort {self.dataset['cohort']} are missing: {what}; {advice}"
        )

    def inside(self, folder: Path, relative: str, origin: str) -> Path:
        """``folder / relative``, refusing paths that lead out of the folder.

        The test is on the text and not on resolved links, because data folders are often links.
        """
        path = os.path.normpath(relative)
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
            raise BrioError(
                f"{origin} of cohort {self.dataset['cohort']} leads to {relative!r}, outside "
                f"{folder}; use a path relative to that folder"
            )
        return folder / path
