"""One subject's scan as ROI series: what every reader returns."""

from dataclasses import dataclass

import numpy as np

from brio_core.system.errors import one_line

# Between the files of a scan that has several runs, in the column ``source``.
RUN_SEPARATOR = ";"
LONGEST_REASON = 500
# Means over voxels of a 16-bit scanner stay below 65,536, and even sums over ten thousand voxels
# below this.
LARGEST = 1e9


class Unusable(Exception):
    """One subject cannot be used; the text before the first colon is the kind of reason."""

    def __init__(self, reason: str, frames_before: int = -1, frames_after: int = -1):
        # What a library says of a file may quote all of it.
        super().__init__(one_line(reason)[:LONGEST_REASON])
        self.frames_before = frames_before
        self.frames_after = frames_after


class AtlasMisfit(Unusable):
    """The atlas has labels without a voxel in an image: the fault of one of the two."""


@dataclass(frozen=True)
class Scan:
    """Cleaned ROI series (frames by ROIs, finite, constant ROIs zero) and how it came about."""

    series: np.ndarray
    frames_before: int
    names: tuple[str, ...] = ()
    note: str = ""
    source_sha256: str = ""

    @property
    def dead(self) -> tuple[int, ...]:
        """Places of the regions without signal, whose series are zero."""
        return tuple(np.flatnonzero(~self.series.any(axis=0)).tolist())


def clean_scan(values: np.ndarray, names: tuple[str, ...] = (), file: str = "") -> Scan:
    """Drop the frames that are not finite in every ROI, and set constant ROIs to zero.

    A ROI without a single finite value is missing, and counts as constant: it must not cost the
    frames of the others. Values that no scanner gives make a scan unusable.
    """
    with np.errstate(over="ignore"):  # what single precision cannot hold is not finite
        values = values.astype(np.float32)
    values[:, ~np.isfinite(values).any(axis=0)] = 0
    kept = values[np.isfinite(values).all(axis=1)]
    largest = np.abs(kept).max(initial=0)
    if largest > LARGEST:
        where = f" in {file}" if file else ""
        raise Unusable(
            f"impossible values: up to {largest:.1e}{where}, and no scanner reaches {LARGEST:g}"
        )
    kept[:, constant_columns(kept)] = 0
    return Scan(kept, len(values), names)


def constant_columns(values: np.ndarray) -> np.ndarray:
    """Which columns do not vary beyond single precision."""
    if not len(values):
        return np.ones(values.shape[1], bool)
    return np.ptp(values, axis=0) <= 1e-6 * np.abs(values).max(axis=0)


def join_runs(scans: list[Scan], note: str) -> Scan:
    """Several runs as one scan, each standardised before: their levels must not correlate."""
    parts = []
    for scan in scans:
        series = scan.series.astype(np.float64)
        spread = series.std(axis=0)
        varies = ~constant_columns(series)
        parts.append((series - series.mean(axis=0)) * varies / np.where(varies, spread, 1))
    series = np.concatenate(parts).astype(np.float32)
    return Scan(series, sum(scan.frames_before for scan in scans), scans[0].names, note)
