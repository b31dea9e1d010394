"""Which subjects every fold sees in every step, drawn before training and kept on the device."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.system.seeds import numpy_generator
from brio_core.training.data import Fold
from brio_core.training.problem import Problem


class Batches:
    """Schedules of several folds; a fold's own does not depend on the others."""

    def __init__(self, problem: Problem, folds: Sequence[Fold]) -> None:
        data, hyperparameters = problem.data, problem.trial.hyperparameters
        # Equal for all folds of the split file, whichever of them are here.
        sizes = [len(fold.train) for fold in data.folds]
        self.per_epoch = steps_per_epoch(hyperparameters, sizes, data.n_sites(folds[0]))
        rows, present, numbers = [], [], []
        for fold in folds:
            site, label = data.cohort.site[fold.train], data.label[fold.train]
            generator = numpy_generator(*problem.seed_key(fold, "batches"))
            steps = hyperparameters.epochs * self.per_epoch
            drawn = schedule(hyperparameters, site, label, steps, generator, max(sizes))
            present.append(drawn >= 0)
            rows.append(fold.train[np.where(drawn < 0, ~drawn, drawn)])
            # Each fold counts its own training sites from 0; other subjects are never asked for.
            number = np.zeros(len(data.label), np.int64)
            number[fold.train] = data.site_numbers(fold)
            numbers.append(number)
        self._rows, self._present, self._sites = (
            torch.as_tensor(np.stack(part), device=data.device) for part in (rows, present, numbers)
        )
        self._label = torch.as_tensor(data.label, device=data.device)

    def keep(self, folds: Tensor) -> None:
        """Forget all folds but these."""
        self._rows, self._present = self._rows[folds], self._present[folds]
        self._sites = self._sites[folds]

    def take(self, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Rows, labels and sites (F, B) of a step (1,); places without a subject have site -1."""
        rows = self._rows.index_select(1, step).squeeze(1)
        present = self._present.index_select(1, step).squeeze(1)
        return rows, self._label[rows], torch.where(present, self._sites.gather(1, rows), -1)


def steps_per_epoch(
    hyperparameters: GradientHyperparameters, sizes: Sequence[int], n_sites: int
) -> int:
    """One number for all folds of a split file: the largest training set is seen about once."""
    if hyperparameters.sampler == "everyone":
        return 1
    batch = hyperparameters.batch_size
    if hyperparameters.sampler in ("sites", "episodes"):
        n_sites = min(n_sites, hyperparameters.sites_per_batch)
    if hyperparameters.sampler in ("balanced", "sites"):
        batch = 2 * n_sites * hyperparameters.subjects_per_site_class
    if hyperparameters.sampler == "episodes":
        batch = n_sites * hyperparameters.subjects_per_site
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
    members = [
        np.flatnonzero((site == here) & (label == side))
        for here in np.unique(site)
        for side in (0, 1)
    ]
    count = hyperparameters.subjects_per_site_class
    return np.concatenate([_stream(some, n_steps, count, generator) for some in members], axis=1)


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
    present, per_round = min(count, len(members)), max(1, len(members) // count)
    rounds = math.ceil(n_steps / per_round)
    order = generator.permuted(np.tile(members, (rounds, 1)), axis=1)
    order = order[:, : per_round * present].reshape(-1, present)[:n_steps]
    return np.concatenate([order, ~order[:, np.arange(count - present) % present]], axis=1)
