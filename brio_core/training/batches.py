"""Which subjects every fold sees in every step, drawn before training and kept on the device."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from brio_core.system.seeds import numpy_generator
from brio_core.training.data import Fold
from brio_core.training.problem import Problem
from brio_core.training.samplers import schedule, steps_per_epoch


class Batches:
    """Schedules of several folds; a fold's own does not depend on the others."""

    def __init__(self, problem: Problem, folds: Sequence[Fold]) -> None:
        data, hyperparameters = problem.data, problem.trial.hyperparameters
        # Equal for all folds of the split file, whichever of them are here.
        sizes = [len(fold.train) for fold in data.folds]
        self.per_epoch = steps_per_epoch(hyperparameters, sizes, 2 * data.n_sites(folds[0]))
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
