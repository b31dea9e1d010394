"""How far a scan's connectivity lies from the training sites.

The distance to a site is the root mean square, over all pairs of ROIs, of the difference from the
site's mean, in deviations within sites. What counts is the nearest site. A percentile says how many
training subjects are nearer to the nearest *other* site, which is what a new scan is compared with.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

PERCENTS = np.arange(1, 100)
SUBJECTS_AT_ONCE = 64
# Of all training subjects; what lies farther gets a warning.
FAR = 99


class Training(NamedTuple):
    """The training sites: their means (S, E), the deviation within sites (E,), distances (99,).

    ``distances`` are percentiles of training subjects' distances to the nearest other site, and
    ``between`` (S,) is the distance of every site's mean to the nearest other site's, by
    :meth:`of_means`.
    """

    means: np.ndarray
    deviation: np.ndarray
    distances: np.ndarray
    between: np.ndarray

    def from_sites(self, edges: np.ndarray) -> np.ndarray:
        """Distances (N, S) of the edges (N, E) of scans."""
        usable = self.deviation > 0
        scale = 1 / self.deviation[usable].astype(float)
        scaled, means = (one[:, usable].astype(float) * scale for one in (edges, self.means))
        # One product instead of a difference for every site.
        squares = (scaled**2).sum(1)[:, None] - 2 * scaled @ means.T + (means**2).sum(1)
        return np.sqrt(np.maximum(squares, 0) / max(1, usable.sum()))

    def of_means(
        self, means: np.ndarray, counts: Sequence[int], sizes: Sequence[int]
    ) -> np.ndarray:
        """Distances (N, S) of the means (N, E) of so many scans from sites of these sizes.

        Without what chance adds to the square, the variance of either mean: few scans look far.
        """
        chance = 1 / np.asarray(counts)[:, None] + 1 / np.asarray(sizes)
        return np.sqrt(np.maximum(self.from_sites(means) ** 2 - chance, 0))

    def percentile(self, distance: np.ndarray) -> np.ndarray:
        """Percent of training subjects that are nearer: whole numbers from 0 to 99."""
        return np.searchsorted(self.distances, distance, side="left")


def edges_of(connectivity: np.ndarray) -> np.ndarray:
    """Edges (N, E) of matrices (N, P, P)."""
    first, second = np.triu_indices(connectivity.shape[-1], 1)
    return connectivity[:, first, second]


def describe(read: Callable[[np.ndarray], np.ndarray], site: np.ndarray) -> Training:
    """The training sites, from ``read(rows)``, which gives connectivity (n, P, P) of subjects."""
    names, number = np.unique(site, return_inverse=True)
    counts = np.bincount(number)
    total = square = 0.0

    def parts():
        for start in range(0, len(site), SUBJECTS_AT_ONCE):
            rows = np.arange(start, min(start + SUBJECTS_AT_ONCE, len(site)))
            yield number[rows], edges_of(read(rows)).astype(float)

    for own, edges in parts():
        member = np.eye(len(names))[own]
        total, square = total + member.T @ edges, square + (edges**2).sum(0)
    means = total / counts[:, None]
    within = square - (counts[:, None] * means**2).sum(0)
    deviation = np.sqrt(np.maximum(within, 0) / max(1, len(site) - len(names)))
    found = Training(means, deviation, np.zeros(0), np.zeros(0))
    nearest = []
    for own, edges in parts():
        distance = found.from_sites(edges)
        distance[np.arange(len(own)), own] = np.inf
        nearest.append(distance.min(1))
    among = found.of_means(means, counts, counts)
    np.fill_diagonal(among, np.inf)
    return Training(
        means.astype(np.float32),
        deviation.astype(np.float32),
        np.percentile(np.concatenate(nearest), PERCENTS),
        among.min(1),
    )
