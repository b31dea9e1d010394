"""Which subjects stand in which batch: one schedule per fold, drawn before training starts."""

import math
from collections.abc import Sequence

import numpy as np

from brio_core.methods.hyperparameters import GradientHyperparameters


def steps_per_epoch(
    hyperparameters: GradientHyperparameters, sizes: Sequence[int], n_cells: int
) -> int:
    """One number for all folds of a split file: the largest training set is seen about once."""
    if hyperparameters.sampler == "everyone":
        return 1
    batch = hyperparameters.batch_size
    if hyperparameters.sampler == "balanced":
        batch = n_cells * hyperparameters.subjects_per_site_class
    if hyperparameters.sampler == "sites":
        batch = (
            min(n_cells, 2 * hyperparameters.sites_per_batch)
            * hyperparameters.subjects_per_site_class
        )
    if hyperparameters.sampler == "episodes":
        batch = (
            min(n_cells // 2, hyperparameters.sites_per_batch) * hyperparameters.subjects_per_site
        )
    return max(1, math.ceil(max(sizes) / batch))


def schedule(
    hyperparameters: GradientHyperparameters,
    site: np.ndarray,
    label: np.ndarray,
    n_steps: int,
    generator: np.random.Generator,
    largest: int = 0,
) -> np.ndarray:
    """Positions of training subjects for every step, (n_steps, batch).

    ``shuffled`` runs through one random permutation after another. ``balanced`` does so within
    every (site, class) and takes equally many of each, ordered as (site, class, subject): small
    sites repeat sooner, and no subject is ever dropped. ``sites`` draws some sites anew in every
    step, in the same order of rows and nobody twice: where a class has too few subjects, its
    empty places hold ``~position`` of a stand-in, which gives the batch its shape only.
    ``episodes`` takes some sites in random order, and the next subjects of each in its own turn:
    a site with too few subjects has them twice.
    ``everyone`` takes all subjects in their order, and stand-ins up to the size of the ``largest``
    training set.
    """
    if hyperparameters.sampler == "shuffled":
        return _stream(np.arange(len(site)), n_steps, hyperparameters.batch_size, generator)
    if hyperparameters.sampler == "everyone":
        absent = max(0, largest - len(site))
        return np.tile(np.r_[np.arange(len(site)), np.full(absent, ~0)], (n_steps, 1))
    if hyperparameters.sampler == "sites":
        return _sites(hyperparameters, site, label, n_steps, generator)
    if hyperparameters.sampler == "episodes":
        return _episodes(hyperparameters, site, n_steps, generator)
    cells = [
        np.flatnonzero((site == here) & (label == side))
        for here in np.unique(site)
        for side in (0, 1)
    ]
    count = hyperparameters.subjects_per_site_class
    return np.concatenate([_stream(cell, n_steps, count, generator) for cell in cells], axis=1)


def _stream(
    members: np.ndarray, n_steps: int, count: int, generator: np.random.Generator
) -> np.ndarray:
    rounds = math.ceil(n_steps * count / len(members))
    order = generator.permuted(np.tile(members, (rounds, 1)), axis=1)
    return order.reshape(-1)[: n_steps * count].reshape(n_steps, count)


def _sites(
    hyperparameters: GradientHyperparameters,
    site: np.ndarray,
    label: np.ndarray,
    n_steps: int,
    generator: np.random.Generator,
) -> np.ndarray:
    count, here = hyperparameters.subjects_per_site_class, np.unique(site)
    draws = []
    for one in here:
        at_site = np.flatnonzero(site == one)
        for side in (0, 1):
            members = at_site[label[at_site] == side]
            if len(members):
                draws.append(_draws(members, n_steps, count, generator))
            else:
                others = _draws(at_site, n_steps, count, generator)
                draws.append(np.where(others < 0, others, ~others))
    # (site, step, class and subject)
    by_site = np.stack(draws).reshape(len(here), 2, n_steps, count).swapaxes(1, 2)
    drawn = generator.permuted(np.tile(np.arange(len(here)), (n_steps, 1)), axis=1)
    drawn = np.sort(drawn[:, : hyperparameters.sites_per_batch], axis=1)
    return by_site[drawn, np.arange(n_steps)[:, None]].reshape(n_steps, -1)


def _episodes(
    hyperparameters: GradientHyperparameters,
    site: np.ndarray,
    n_steps: int,
    generator: np.random.Generator,
) -> np.ndarray:
    here = np.unique(site)
    drawn = generator.permuted(np.tile(np.arange(len(here)), (n_steps, 1)), axis=1)
    drawn = drawn[:, : hyperparameters.sites_per_batch]
    rows = np.empty((*drawn.shape, hyperparameters.subjects_per_site), np.int64)
    for number, one in enumerate(here):
        turns = drawn == number
        members = np.flatnonzero(site == one)
        # A site goes on where it stopped when it was drawn last.
        rows[turns] = _stream(members, turns.sum(), hyperparameters.subjects_per_site, generator)
    return rows.reshape(n_steps, -1)


def _draws(
    members: np.ndarray, n_steps: int, count: int, generator: np.random.Generator
) -> np.ndarray:
    """In every step ``count`` different members, or all of them and stand-ins."""
    taken, per_round = min(count, len(members)), max(1, len(members) // count)
    rounds = math.ceil(n_steps / per_round)
    order = generator.permuted(np.tile(members, (rounds, 1)), axis=1)
    order = order[:, : per_round * taken].reshape(-1, taken)[:n_steps]
    return np.concatenate([order, ~order[:, np.arange(count - taken) % taken]], axis=1)
