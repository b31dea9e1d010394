"""What every kind of source has in common."""

import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from brio_core.cohorts.atlases.regions import Regions, known_hemispheres
from brio_core.system.errors import BrioError


class Unusable(Exception):
    """One subject cannot be used; the text before the first colon is the kind of reason."""

    def __init__(self, reason: str, frames_before: int | None = None, frames: int | None = None):
        super().__init__(" ".join(reason.split()))
        self.frames_before = frames_before
        self.frames = frames


# Between the files of a scan that has several runs, in the column ``source``.
RUN_SEPARATOR = ";"


class AtlasMisfit(Unusable):
    """The atlas has labels without a voxel in an image: the fault of one of the two."""


@dataclass(frozen=True)
class Scan:
    """Cleaned ROI series (frames by ROIs, finite, constant ROIs zero) and how it came about."""

    series: np.ndarray
    frames_before: int
    constant_rois: int
    names: tuple[str, ...] = ()
    note: str = ""
    source_sha256: str = ""


def join_runs(scans: list[Scan]) -> Scan:
    """Several runs as one scan, each standardised before: their levels must not correlate."""
    parts = []
    for scan in scans:
        series = scan.series.astype(np.float64)
        spread = series.std(axis=0)
        varies = ~constant_columns(series)
        parts.append((series - series.mean(axis=0)) * varies / np.where(varies, spread, 1))
    series = np.concatenate(parts).astype(np.float32)
    before = sum(scan.frames_before for scan in scans)
    return Scan(series, before, int(constant_columns(series).sum()), scans[0].names)


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
        _ = self.regions, self._hemispheres

    @property
    def atlas_setting(self) -> tuple[dict, str] | None:
        """Which atlas image the dataset names, if any, and the key it stands under."""
        setting = self.dataset["rois"]
        if "atlas" in setting:
            if "image" in setting or "labels" in setting:
                raise BrioError(
                    f"rois of cohort {self.dataset['cohort']} has an atlas that is fetched beside "
                    "an image or labels; keep one of them"
                )
            return setting["atlas"], "rois.atlas"
        return (setting, "rois") if "image" in setting else None

    @cached_property
    def atlas(self):
        """The image of :attr:`atlas_setting`, with its names."""
        if self.atlas_setting is None:
            return None
        from brio_core.cohorts.atlases.atlas import fetch_atlas, read_atlas

        (setting, key), expected = self.atlas_setting, self.dataset["rois"]["expected"]
        if "fetch" in setting:
            return fetch_atlas(setting, self.data_dir / "atlases", expected, key)
        names = next((name for name in ("names", "labels") if name in setting), None)
        image = self._file_of_atlas(setting["image"], f"{key}.image")
        named = names and self._file_of_atlas(setting[names], f"{key}.{names}")
        return read_atlas(image, named, expected)

    def _file_of_atlas(self, name: str, key: str) -> Path:
        path = self.inside(self.root, name, key)
        if not path.is_file():
            raise BrioError(
                f"{path} does not exist, which {key} of cohort {self.dataset['cohort']} names; put "
                "the file of the atlas there, or correct the key"
            )
        return path

    @cached_property
    def regions(self) -> Regions | None:
        """What the dataset tells about the regions beside their number."""
        setting = self.dataset["rois"]
        if self.atlas is not None:
            return self.atlas.regions
        if "labels" not in setting:
            return None
        from brio_core.cohorts.atlases.labels import read_labels

        found = read_labels(self._file_of_atlas(setting["labels"], "rois.labels"))
        found.require(setting["expected"])
        return found

    @property
    def _hemispheres(self) -> tuple[str, ...] | None:
        """Those of ``rois.hemispheres``."""
        setting = self.dataset["rois"]
        if "hemispheres" not in setting:
            return None
        return known_hemispheres(setting["hemispheres"], setting["expected"])

    def scan_path(self, row: dict) -> Path:
        """The scan of one row of :meth:`table`; raises :class:`Unusable` if there can be none."""
        raise NotImplementedError

    def scan_paths(self, row: dict) -> list[Path]:
        """The runs of one row that are joined to its scan; most kinds of source have one."""
        return [self.scan_path(row)]

    def mean_fd(self, path: Path) -> float | None:
        """Mean framewise displacement in mm, where the scan's own files tell."""
        return None

    def repetition_time(self, path: Path) -> float | None:
        """Seconds between frames, where the scan's own files tell."""
        return None

    def read(self, path: Path, tr: float | None) -> Scan:
        """Read and clean one scan; raises :class:`Unusable` if that is impossible."""
        raise NotImplementedError

    def read_runs(self, paths: list[Path], tr: float | None) -> Scan:
        """The joined runs of a scan; unusable ones are left out as long as one is left."""
        if len(paths) == 1:
            return self.read(paths[0], tr)
        scans, problems = [], []
        for path in paths:
            try:
                scans.append(self.read(path, tr))
            except Unusable as unusable:
                problems.append(unusable)
        if not scans:
            raise problems[0]
        if any(scan.series.shape[1] != scans[0].series.shape[1] for scan in scans):
            raise Unusable("runs do not fit together: they have different numbers of ROIs")
        left_out = f"; left out: {'; '.join(map(str, problems))}" if problems else ""
        note = f"{len(scans)} of {len(paths)} runs joined{left_out}"
        return replace(join_runs(scans), note=note)

    def rois(self, names: tuple[str, ...]):
        """The regions of the series, given the names that the scans themselves carry."""
        from brio_core.cohorts.stores import Rois

        if self.regions is None:
            expected = self.dataset["rois"]["expected"]
            rois = Rois.named(names or [f"ROI {index + 1}" for index in range(expected)])
        else:
            rois = self.regions.of_series(names).rois()
        if self._hemispheres and not {"L", "R"} & set(rois.hemispheres):
            return replace(rois, hemispheres=self._hemispheres)
        return rois

    @property
    def units(self) -> str:
        """The units of the series."""
        return "as in the files of the source"

    def provenance(self) -> dict:
        """What the series depend on beside the dataset's settings."""
        return {} if self.atlas is None else {"atlas_sha256": self.atlas.checksum}

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

    def file_name_part(self, value: str, role: str) -> str:
        """``value`` if it can be part of the name of a file, and of nothing but a name."""
        if value in (".", "..") or set(value) & set("/\\;\0") or len(value) > 200:
            raise BrioError(
                f"{self.table_path} has the {role} {value[:200]!r}, which cannot be part of a file "
                "name; use letters, digits, '-' and '_'"
            )
        return value

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
