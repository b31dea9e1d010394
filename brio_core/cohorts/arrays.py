"""A cohort from arrays in memory, as a notebook has them."""

from collections.abc import Iterator, Mapping, MappingView, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from brio_core.cohorts.cohort import Cohort, read_participants
from brio_core.cohorts.demo import model
from brio_core.cohorts.extraction import Outcome
from brio_core.cohorts.inclusion import Rules, scan_reason
from brio_core.cohorts.scan import Unusable, clean_scan
from brio_core.cohorts.stores import Rois, Series
from brio_core.connectivity.fisher_z import fisher_z, fisher_z_connectivity, without_diagonal
from brio_core.system.errors import BrioError
from brio_core.system.rows import Rows
from brio_core.system.seeds import numpy_generator

SERIES, CONNECTIVITY, FEATURES = "ROI series", "connectivity", "plain features"
COVARIATES = ("age", "sex", "mean framewise displacement")
# A matrix may miss symmetry by rounding.
SYMMETRIC = 1e-5
# Below this, correlations are mostly noise; the 60 of the workflow's files can be set, this cannot.
MIN_FRAMES = 20
# Of unit signals of the demo: what is left of a voxel's noise in the mean of a region.
NOISE = 1.0


class Scans(Sequence):
    """ROI series of a cohort's subjects, (frames, ROIs) each, which are read when asked for.

    ``scans[3]`` is an array. ``scans[rows]`` are scans again, with the names of subjects and cohort
    that the randomness of networks and re-estimates is derived from.
    """

    def __init__(
        self,
        series: Series,
        cohort: str,
        rows: np.ndarray | None = None,
        fc: np.ndarray | Rows | None = None,
    ) -> None:
        self.cohort = cohort
        self._series = series
        self._rows = np.arange(len(series)) if rows is None else rows
        self._fc = fc

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, rows: Any) -> Any:
        chosen = self._rows[rows]
        if np.ndim(chosen) == 0:
            return self._series.scan(int(chosen))
        return Scans(self._series, self.cohort, chosen, self._fc)

    @property
    def subjects(self) -> tuple[str, ...]:
        """Names of the subjects."""
        return tuple(self._series.subjects[row] for row in self._rows)

    def made(self) -> tuple[Series, np.ndarray]:
        """The series, and their Fisher-z connectivity."""
        rois, provenance = self._series.rois, self._series.provenance
        series = series_of(list(self), self.subjects, rois, provenance)
        return series, connectivity(self) if self._fc is None else self._fc[self._rows]


@dataclass(frozen=True)
class LabelledScans:
    """What a cohort is made of: scans, classes ``y`` (0, 1), sites, covariates, groups.

    Covariates are age, sex (1 is male) and mean framewise displacement; unknown is NaN. Subjects of
    one group, such as a family, stay on one side of every split; ``n/a`` is no group.
    """

    scans: Scans
    y: np.ndarray
    sites: np.ndarray
    covariates: np.ndarray
    groups: np.ndarray


def read_cohort(folder: str | Path) -> LabelledScans:
    """A cohort that the workflow has prepared, such as ``results/cohorts/abide-cc200``."""
    if not Path(folder).is_dir():
        raise BrioError(f"{folder} is no folder; name that of a cohort which the workflow has made")
    cohort, table = Cohort.load(folder), read_participants(Path(folder) / "participants.tsv")
    return LabelledScans(
        Scans(cohort.series, cohort.name, fc=cohort.fc),
        table["label"].to_numpy(),
        cohort.site,
        cohort.covariates,
        table["group"].to_numpy(),
    )


def demo_scans(per_site: int = 14) -> LabelledScans:
    """The demo's seven sites and effects as ROI series, with as many patients (1) as controls (0).

    They are always the same numbers, and nobody is unusable.
    """
    scans, people = [], []
    for site in model.SITES:
        for _ in range(per_site):
            subject, label = f"sub-{len(people) + 1:03d}", 1 - len(people) % 2
            draw = numpy_generator("demo-series", subject)
            signals = model.roi_signals(site, subject, bool(label), site.frames, draw)
            noise = model.autoregressive(draw, signals.shape, site.noise_colour)
            scans.append(((signals + NOISE * noise) * site.gain).astype(np.float32))
            about = (draw.uniform(18, 60), float(draw.integers(2)), draw.uniform(0.05, 0.3))
            people.append((subject, label, site.name, about))
    subjects, y, sites, covariates = zip(*people)
    rois = Rois(model.NAMES, model.CENTROIDS.astype(np.float32), model.HEMISPHERES)
    return LabelledScans(
        Scans(series_of(scans, subjects, rois), "demo-series"),
        np.array(y),
        np.array(sites),
        np.array(covariates, np.float32),
        np.full(len(y), "n/a"),
    )


def kind_of(scans: Any) -> str:
    """What scans are: series, connectivity, or a table of plain features."""
    if isinstance(scans, Scans):
        return SERIES
    listed = isinstance(scans, list | tuple) and len(scans) and np.ndim(scans[0]) == 2
    if listed or getattr(scans, "ndim", 0) == 3:
        first = np.asarray(scans[0])
        square = first.shape[0] == first.shape[1]
        return CONNECTIVITY if square and _is_symmetric(first.astype(float)) else SERIES
    return FEATURES


def as_scans(scans: Any) -> Any:
    """Scans that have rows; a list of connectivity matrices becomes one array."""
    # A sparse table, which scikit-learn refuses, may be a mapping too, but has a shape.
    if isinstance(scans, Mapping | MappingView | Iterator) and not hasattr(scans, "shape"):
        raise BrioError(f"scans are a {type(scans).__name__}; give a list of (frames, ROIs) arrays")
    if isinstance(scans, np.ndarray | pd.Series) and scans.ndim == 1 and scans.dtype.kind == "O":
        scans = list(scans)
    if isinstance(scans, list | tuple):
        if not scans:
            raise BrioError("there are no scans; give one or more")
        if kind_of(scans) == CONNECTIVITY:
            if len({np.shape(matrix) for matrix in scans}) > 1:
                raise BrioError("scan 0 is connectivity, but not all have its shape; use one atlas")
            return np.stack(scans)
    return scans


def cohort_of(scans: Any, sites: Any = None, covariates: Any = None, min_frames: int = 1) -> Cohort:
    """A cohort of scans; where there are no series, asking for them is an error."""
    kind, name = kind_of(scans), "cohort"
    if isinstance(scans, Scans):
        name, (series, fc) = scans.cohort, scans.made()
    elif kind == SERIES:
        rules = Rules(rois=np.shape(scans[0])[1], min_frames=MIN_FRAMES)
        scans = [_checked(scan, number, rules) for number, scan in enumerate(scans)]
        series, fc = series_of(scans, _numbers(len(scans))), connectivity(scans)
    else:
        fc = _square(scans) if kind == CONNECTIVITY else as_edges(np.asarray(scans))
        series = _no_series(len(fc), fc.shape[-1], kind, min_frames)
    count = len(fc)
    sites = np.full(count, "") if sites is None else one_each(sites, count, "sites").astype(str)
    return Cohort(name, series.subjects, sites, fc, series, _covariates(covariates, count))


def one_each(values: Any, count: int, name: str) -> np.ndarray:
    """One value per scan, none of them missing."""
    # As text, NaN would be a name.
    missing = np.flatnonzero(pd.isna(np.asarray(values, object)))
    values = np.asarray(values)
    if values.shape != (count,):
        raise BrioError(
            f"{name} has the shape {values.shape}, but there are {count} scans; give one value "
            "for each"
        )
    if len(missing):
        raise BrioError(f"{name} has no value for scan {missing[0]}; give one, or leave it out")
    return values


def two_classes(y: Any) -> tuple[np.ndarray, np.ndarray]:
    """The two classes, and 0 or 1 for every scan."""
    y = one_each(y, np.size(y), "y")
    if y.dtype.kind == "f" and (y != np.floor(y)).any():
        raise BrioError("Unknown label type: y is continuous, but must name two classes")
    classes, label = np.unique(y, return_inverse=True)
    if len(classes) == 1:
        raise BrioError(f"y has 1 class, {classes[0]}, but must name two classes")
    if len(classes) > 2:
        raise BrioError(
            "Only binary classification is supported. The type of the target is multiclass: y has "
            f"{len(classes)} classes"
        )
    return classes, label


def series_of(
    scans: Sequence[np.ndarray],
    subjects: Sequence[str],
    rois: Rois | None = None,
    provenance: dict | None = None,
) -> Series:
    """Series in memory."""
    rois = rois or Rois.named(f"roi{number}" for number in range(scans[0].shape[1]))
    offsets = np.cumsum([0, *map(len, scans)])
    bold = np.concatenate(scans).astype(np.float32, copy=False)
    return Series(tuple(subjects), bold, offsets, rois, provenance or {})


def connectivity(scans: Sequence[np.ndarray]) -> np.ndarray:
    """Fisher-z connectivity (N, P, P), as the rule ``connect`` makes it of stored series."""
    stored = (np.asarray(scan, np.float32).astype(np.float64) for scan in scans)
    return np.stack([fisher_z_connectivity(scan).astype(np.float32) for scan in stored])


def as_edges(features: np.ndarray) -> np.ndarray:
    """Features (N, D) as the first D edges of symmetric matrices; other edges are zero."""
    count = features.shape[1]
    n_rois = int(np.ceil((1 + np.sqrt(1 + 8 * count)) / 2))
    rows, columns = (part[:count] for part in np.triu_indices(n_rois, 1))
    matrices = np.zeros((len(features), n_rois, n_rois), np.float32)
    matrices[:, rows, columns] = matrices[:, columns, rows] = features
    return matrices


def _numbers(count: int) -> tuple[str, ...]:
    return tuple(f"scan-{number}" for number in range(count))


def _checked(scan: Any, number: int, rules: Rules) -> np.ndarray:
    """A scan, cleaned and judged as if it were read from a file."""
    try:
        values = np.asarray(scan, np.float64)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.ndim != 2 or not values.size:
        raise BrioError(f"scan {number} is no (frames, ROIs) array of numbers; leave it out")
    try:
        found = clean_scan(values)
        reason = scan_reason(Outcome.of("", found), rules)
    except Unusable as unusable:
        reason = str(unusable)
    if kind_of([values]) == CONNECTIVITY:
        reason = "a matrix of connectivity, but scan 0 is a series"
    if reason:
        raise BrioError(f"scan {number} cannot be used: {reason}; leave it out")
    return found.series


def _square(matrices: Any) -> np.ndarray:
    """Fisher-z matrices; correlations, with ones on their diagonals, are turned into these."""
    matrices = np.asarray(matrices, np.float32)
    if not np.isfinite(matrices).all():
        number = int(np.flatnonzero(~np.isfinite(matrices).all((1, 2)))[0])
        raise BrioError(f"matrix {number} has missing or infinite values; leave it out")
    if not _is_symmetric(matrices):
        raise BrioError("a matrix of connectivity is not symmetric; give symmetric ones")
    found = torch.from_numpy(matrices)
    if np.allclose(np.diagonal(matrices, axis1=1, axis2=2), 1):
        found = fisher_z(found)
    return without_diagonal(found).numpy()


def _is_symmetric(matrices: np.ndarray) -> bool:
    return bool(np.allclose(matrices, matrices.swapaxes(-1, -2), atol=SYMMETRIC, equal_nan=True))


def _no_series(count: int, n_rois: int, kind: str, frames: int) -> Series:
    def read(rows: Any) -> Any:
        raise BrioError(f"this method reads ROI series, but was given {kind}; give it the series")

    bold = Rows(read, (count * frames, n_rois))
    names = Rois.named(f"roi{number}" for number in range(n_rois))
    return Series(_numbers(count), bold, np.arange(count + 1) * frames, names, {})


def _covariates(values: Any, count: int) -> np.ndarray:
    if values is None:
        return np.full((count, len(COVARIATES)), np.nan, np.float32)
    try:
        values = np.asarray(values, np.float32)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.shape != (count, len(COVARIATES)):
        raise BrioError(
            f"covariates must be numbers, one row for each of the {count} scans: "
            f"{', '.join(COVARIATES)}; sex is 1 for male, and unknown values are NaN"
        )
    return values
