"""Copies of a scan under another id: rounded, scaled, shifted, cropped, filtered again.

Of every scan a sketch is kept: its standardised series in a few random directions over regions.
Scans whose sketches have similar covariance are compared further, because neither a shift nor a
crop changes that much. A copy then has nearly the same series at some lag. A second session of the
same person has not: its connectivity is similar, its series are unrelated.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np
from scipy import fft

# In ABIDE other pairs reach 0.22 at their best lag, and copies have 0.9 to 1. A copy that lost most
# frequencies to another filter may have less than this, and is then not found.
LEAST_CORRELATION = 0.7
# Two scans are compared where they overlap: this share of the shorter one, and at least so many
# frames. Less would let chance in, so shorter scans must be covered and nearly equal.
LEAST_OVERLAP, LEAST_FRAMES, NEARLY_EQUAL = 0.5, 30, 0.99
DIRECTIONS = 32
NEIGHBOURS = 5
_CHUNK = 512


class Pair(NamedTuple):
    """Two subjects, in the order of the table, whose series correlate at a lag (frames)."""

    first: str
    second: str
    correlation: float
    lag: int


class Sketches:
    """What is remembered of the scans of a cohort: 64 bytes per frame."""

    def __init__(self, n_rois: int):
        draw = np.random.default_rng(0).normal(size=(n_rois, min(DIRECTIONS, n_rois)))
        self._directions = np.linalg.qr(draw)[0].astype(np.float32)
        self._sketch: dict[str, np.ndarray] = {}

    def add(self, subject: str, series: np.ndarray) -> None:
        """Remember a scan (frames, ROIs); the order of calls is that of the table."""
        values = series - series.mean(axis=0)
        spread = values.std(axis=0)
        values *= (spread > 0) / np.where(spread > 0, spread, 1)
        # What all regions share would make unrelated scans alike by chance.
        values -= values.mean(axis=1, keepdims=True)
        self._sketch[subject] = (values @ self._directions).astype(np.float16)

    def pairs(self, among: Container[str]) -> list[Pair]:
        """All pairs of copies among some subjects."""
        subjects = [subject for subject in self._sketch if subject in among]
        sketches = [self._sketch[subject] for subject in subjects]
        found = []
        for first, partners in _nearest(sketches):
            for second, correlation, lag in _compare(sketches, first, partners):
                is_short = min(len(sketches[first]), len(sketches[second])) < LEAST_FRAMES
                if correlation >= (NEARLY_EQUAL if is_short else LEAST_CORRELATION):
                    found.append(Pair(subjects[first], subjects[second], correlation, lag))
        return found


def _nearest(sketches: list[np.ndarray]) -> Iterator[tuple[int, list[int]]]:
    """Every scan with the later ones that are among its nearest, or it among theirs."""
    if len(sketches) < 2:
        return
    upper = np.triu_indices(sketches[0].shape[1])
    covariance = np.empty((len(sketches), len(upper[0])), np.float32)
    for row, sketch in enumerate(sketches):
        values = sketch.astype(np.float32)
        covariance[row] = (values.T @ values)[upper] / len(values)
    covariance -= covariance.mean(axis=0)
    covariance /= np.maximum(np.linalg.norm(covariance, axis=1, keepdims=True), 1e-12)
    # Among equals the earliest count as nearest, so that many copies all meet the first.
    handicap = 1e-6 * np.arange(len(sketches), dtype=np.float32)
    count = min(NEIGHBOURS, len(sketches) - 1)
    partners: list[set[int]] = [set() for _ in sketches]
    for start in range(0, len(sketches), _CHUNK):
        similarity = covariance[start : start + _CHUNK] @ covariance.T - handicap
        rows = np.arange(len(similarity))
        similarity[rows, start + rows] = -np.inf
        nearest = np.argpartition(similarity, -count, axis=1)[:, -count:]
        for row, others in zip((start + rows).tolist(), nearest.tolist()):
            for other in others:
                partners[min(row, other)].add(max(row, other))
    for row, others in enumerate(partners):
        if others:
            yield row, sorted(others)


def _compare(
    sketches: list[np.ndarray], first: int, partners: list[int]
) -> Iterator[tuple[int, float, int]]:
    """The best correlation over lags with each partner, all directions together."""
    one = sketches[first].astype(np.float32)
    longest = max(len(sketches[other]) for other in partners)
    size = fft.next_fast_len(len(one) + longest - 1, real=True)
    spectrum = fft.rfft(one, size, axis=0)
    energy = _summed(one)
    for partner in partners:
        other = sketches[partner].astype(np.float32)
        lags = np.arange(1 - len(other), len(one))
        cross = spectrum * fft.rfft(other, size, axis=0).conj()
        product = fft.irfft(cross.sum(axis=1), size)[lags]
        begin, end = np.maximum(lags, 0), np.minimum(len(one), len(other) + lags)
        other_energy = _summed(other)
        scale = (energy[end] - energy[begin]) * (
            other_energy[end - lags] - other_energy[begin - lags]
        )
        shorter = min(len(one), len(other))
        least = min(shorter, max(LEAST_FRAMES, LEAST_OVERLAP * shorter))
        usable = (end - begin >= least) & (scale > 0)
        correlation = np.where(usable, product / np.sqrt(np.where(usable, scale, 1)), -1)
        best = int(correlation.argmax())
        yield partner, float(correlation[best]), int(lags[best])


def _summed(sketch: np.ndarray) -> np.ndarray:
    """Squares before each frame: what an overlap holds is a difference of two."""
    squares = np.square(sketch, dtype=np.float64).sum(axis=1)
    return np.concatenate([[0.0], np.cumsum(squares)])
