"""Which subjects stand in which batch: one schedule per fold, drawn before training starts."""

import math
from collections.abc import Sequence

import numpy as np

from brio_core.methods.base import GradientSettings


def steps_per_epoch(settings: GradientSettings, sizes: Sequence[int], n_cells: int) -> int:
    """One number for all folds of a split file: the largest training set is seen about once."""
    batch = settings.batch_size
    if settings.sampler == "balanced":
        batch = n_cells * settings.subjects_per_cell
    return max(1, math.ceil(max(sizes) / batch))


def schedule(
    settings: GradientSettings,
    site: np.ndarray,
    label: np.ndarray,
    n_steps: int,
    generator: np.random.Generator,
) -> np.ndarray:
    """Positions of training subjects for every step, (n_steps, batch).

    ``shuffled`` runs through one random permutation after another. ``balanced`` does so within
    every (site, class) and takes equally many of each, ordered as (site, class, subject): small
    sites repeat sooner, and no subject is ever dropped.
    """
    if settings.sampler == "shuffled":
        return _stream(np.arange(len(site)), n_steps, settings.batch_size, generator)
    cells = [
        np.flatnonzero((site == here) & (label == side))
        for here in np.unique(site)
        for side in (0, 1)
    ]
    count = settings.subjects_per_cell
    return np.concatenate([_stream(cell, n_steps, count, generator) for cell in cells], axis=1)


def _stream(
    members: np.ndarray, n_steps: int, count: int, generator: np.random.Generator
) -> np.ndarray:
    rounds = math.ceil(n_steps * count / len(members))
    order = generator.permuted(np.tile(members, (rounds, 1)), axis=1)
    return order.reshape(-1)[: n_steps * count].reshape(n_steps, count)
