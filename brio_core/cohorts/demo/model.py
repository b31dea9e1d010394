"""The demo cohort's statistics: regions, sites, planted effects and ROI signals.

A subject's ROI signals have the correlation matrix

    common + site + class * (shared pairs + pairs of that site) + subject,    class = -1/2 or 1/2,

brought back to a correlation matrix, and the autocorrelation of a slow process sampled at the
site's repetition time.
"""

from dataclasses import dataclass

import numpy as np

from brio_core.system.seeds import numpy_generator

# Left-hemisphere centroids (mm) and networks; the right hemisphere mirrors them.
_REGIONS = {
    "Medial frontal": ((-10, 48, 15), "default"),
    "Posterior cingulate": ((-10, -45, 25), "default"),
    "Angular": ((-45, -62, 35), "default"),
    "Hippocampus": ((-25, -22, -15), "default"),
    "Precentral": ((-38, -8, 50), "motor"),
    "Postcentral": ((-42, -28, 48), "motor"),
    "Thalamus": ((-12, -18, 8), "motor"),
    "Calcarine": ((-10, -78, 5), "visual"),
    "Lateral occipital": ((-35, -80, -5), "visual"),
    "Insula": ((-36, 12, 0), "control"),
    "Middle frontal": ((-36, 35, 30), "control"),
    "Superior temporal": ((-55, -18, 0), "control"),
}
NAMES = tuple(f"{name} {side}" for name in _REGIONS for side in ("L", "R"))
HEMISPHERES = tuple(side for _ in _REGIONS for side in ("L", "R"))
CENTROIDS = np.array(
    [(sign * x, y, z) for (x, y, z), _ in _REGIONS.values() for sign in (1, -1)], float
)
NETWORKS = tuple(network for _, network in _REGIONS.values() for _ in range(2))
_ROIS = len(NAMES)

_BETWEEN_NETWORKS = {
    ("default", "control"): -0.45,
    ("default", "motor"): -0.2,
    ("default", "visual"): 0.1,
    ("motor", "visual"): 0.3,
    ("motor", "control"): 0.2,
    ("visual", "control"): -0.1,
}

# Seconds over which the signals forget, sizes of the effects in units of correlation.
_MEMORY = 4.0
SHARED_PAIRS, SHARED_EFFECT = 14, 0.36
SPURIOUS_POOL, SPURIOUS_PAIRS, SPURIOUS_EFFECT = 20, 8, 0.5
_SITE_EFFECT, _SUBJECT_EFFECT = 0.16, 0.2


@dataclass(frozen=True)
class Site:
    """One scanner: seconds per frame, frames, noise colour (AR coefficient), gain, drift."""

    name: str
    tr: float
    frames: int
    noise_colour: float
    gain: float
    drift: float


SITES = (
    Site("Alder", 0.8, 158, 0.55, 0.80, 0.020),
    Site("Birch", 1.0, 150, 0.10, 1.25, -0.010),
    Site("Cedar", 1.5, 130, 0.35, 1.00, 0.015),
    Site("Elm", 2.0, 120, 0.20, 1.50, -0.025),
    Site("Hazel", 2.0, 100, 0.45, 0.65, 0.030),
    Site("Maple", 2.2, 110, 0.05, 1.10, 0.005),
    Site("Rowan", 2.5, 90, 0.30, 0.90, -0.020),
)


# Planted ROI pairs: how far the positive class lies above the negative one.
Effects = dict[tuple[int, int], float]


def _draw_pairs() -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Disjoint pairs for the shared effect and for the pool of spurious ones."""
    rows, columns = np.triu_indices(_ROIS, 1)
    order = numpy_generator("demo", "pairs").permutation(len(rows))
    pairs = [(int(rows[k]), int(columns[k])) for k in order]
    return pairs[:SHARED_PAIRS], pairs[SHARED_PAIRS : SHARED_PAIRS + SPURIOUS_POOL]


def shared_effects() -> Effects:
    """The class effect that all sites have: raised on half of the pairs, lowered on the others."""
    pairs = _draw_pairs()[0]
    return {pair: SHARED_EFFECT * (1 if k % 2 else -1) for k, pair in enumerate(pairs)}


def spurious_effects(site: str) -> Effects:
    """The class effect of one site only; sites draw pairs of one pool with signs of their own."""
    pool = _draw_pairs()[1]
    draw = numpy_generator("demo", "spurious", site)
    chosen = draw.permutation(len(pool))[:SPURIOUS_PAIRS]
    signs = draw.permutation(np.resize([-1, 1], SPURIOUS_PAIRS))
    return {pool[k]: float(SPURIOUS_EFFECT * sign) for k, sign in zip(chosen, signs)}


def _effect_matrix(effects: Effects) -> np.ndarray:
    matrix = np.zeros((_ROIS, _ROIS))
    for pair, size in effects.items():
        matrix[pair] = matrix[pair[::-1]] = size
    return matrix


def common_correlation() -> np.ndarray:
    """Networks that agree within and partly oppose each other; mirrored regions agree more."""
    names = list(dict.fromkeys(NETWORKS))
    between = np.eye(len(names))
    for (one, other), value in _BETWEEN_NETWORKS.items():
        row, column = names.index(one), names.index(other)
        between[row, column] = between[column, row] = value
    member = np.array([names.index(network) for network in NETWORKS])
    matrix = 0.45 * between[np.ix_(member, member)]
    left = np.arange(0, _ROIS, 2)
    matrix[left, left + 1] += 0.15
    matrix[left + 1, left] += 0.15
    np.fill_diagonal(matrix, 1)
    return matrix


def _low_rank(draw: np.random.Generator, rank: int, size: float) -> np.ndarray:
    """A smooth symmetric perturbation whose entries have standard deviation ``size``."""
    loadings = draw.standard_normal((_ROIS, rank))
    signs = np.resize([1, -1], rank)
    return size / np.sqrt(rank) * (loadings * signs) @ loadings.T


def _to_correlation(matrix: np.ndarray) -> np.ndarray:
    """The nearby matrix with eigenvalues of at least 0.05 and a unit diagonal."""
    values, vectors = np.linalg.eigh(matrix)
    matrix = (vectors * np.maximum(values, 0.05)) @ vectors.T
    scale = np.sqrt(np.diag(matrix))
    return matrix / np.outer(scale, scale)


def subject_correlation(site: str, subject: str, positive: bool) -> np.ndarray:
    """The correlation matrix behind one subject's signals."""
    shared, spurious = _effect_matrix(shared_effects()), _effect_matrix(spurious_effects(site))
    return _to_correlation(
        common_correlation()
        + _low_rank(numpy_generator("demo", "site", site), 3, _SITE_EFFECT)
        + (0.5 if positive else -0.5) * (shared + spurious)
        + _low_rank(numpy_generator("demo", "subject", subject), 4, _SUBJECT_EFFECT)
    )


def autoregressive(draw: np.random.Generator, shape: tuple[int, int], coefficient: float):
    """Stationary first-order autoregressive noise along the first axis, unit variance."""
    noise = draw.standard_normal(shape)
    noise[1:] *= np.sqrt(1 - coefficient**2)
    for frame in range(1, len(noise)):
        noise[frame] += coefficient * noise[frame - 1]
    return noise


def roi_signals(
    site: Site, subject: str, positive: bool, frames: int, draw: np.random.Generator
) -> np.ndarray:
    """ROI signals (frames, ROIs) of unit variance."""
    root = np.linalg.cholesky(subject_correlation(site.name, subject, positive))
    return autoregressive(draw, (frames, _ROIS), np.exp(-site.tr / _MEMORY)) @ root.T
