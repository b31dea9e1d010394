"""The training scans of several folds and their re-estimates, for what happens between steps.

Folds with the same block length share re-estimates, because the resampled frames are keyed by
subject and not by fold. A chunk is handed out only with the folds that train on its subjects.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.cohort import Cohort
from brio_core.connectivity.block_length import clipped_block_length, round_half_up
from brio_core.connectivity.fisher_z import standardise
from brio_core.connectivity.reestimation import (
    block_multiplicities,
    ragged_block_indices,
    reestimated_connectivity,
    refresh_keys,
    subject_keys,
)
from brio_core.system.replay import Replay
from brio_core.system.residence import gather, half_of_free_memory, place_on_device, rows_of

if TYPE_CHECKING:
    from brio_core.methods.stack import FoldStack
    from brio_core.training.problem import Problem


@dataclass(frozen=True)
class Chunk:
    """Re-estimated FC (n, K, P, P) of the subjects in ``rows``, which train in ``folds``."""

    rows: Tensor
    folds: Tensor
    fc: Tensor


class Scans:
    """Standardised series of a whole cohort on the device, re-estimated on demand."""

    def __init__(
        self, cohort: Cohort, device: torch.device, seed: int, budget: int | None = None
    ) -> None:
        """``budget``: bytes on the device for the series; default half of what is free."""
        budget = half_of_free_memory(device) if budget is None else budget
        self.bold = place_on_device(cohort.padded_bold, device, budget)
        self.frames = torch.as_tensor(cohort.series.frames, device=device)
        self.keys = subject_keys(cohort.name, list(cohort.subjects), seed).to(device)

    def reestimate(
        self, rows: Tensor, block_length: Tensor, refresh: int | Tensor, n_resamples: int
    ) -> Tensor:
        """``n_resamples`` FC re-estimates of every subject in ``rows``, Eq. (fc_reestimation)."""
        draw = self._draw(rows, block_length, refresh, n_resamples)
        weights = block_multiplicities(*draw, self.bold.shape[1])
        return reestimated_connectivity(rows_of(self.bold, rows), weights)

    def resample(
        self, rows: Tensor, block_length: Tensor, refresh: int | Tensor, n_resamples: int
    ) -> Tensor:
        """The resampled series behind :meth:`reestimate`, (n, K, T_max, P), standardised anew."""
        draw = self._draw(rows, block_length, refresh, n_resamples)
        index = ragged_block_indices(*draw, self.bold.shape[1])
        here = torch.arange(len(rows), device=rows.device)
        series = rows_of(self.bold, rows)[here[:, None, None], index]
        inside = torch.arange(self.bold.shape[1], device=rows.device) < draw[0][:, None, None]
        # Non-finite frames are ignored by the standardisation and come back as zeros.
        return standardise(series.where(inside[..., None], torch.nan))

    def _draw(
        self, rows: Tensor, block_length: Tensor, refresh: int | Tensor, n_resamples: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        frames = self.frames[rows]
        keys = refresh_keys(self.keys[rows], block_length, refresh, n_resamples)
        return frames, clipped_block_length(block_length, frames), keys


class Sources:
    """What :meth:`GradientMethod.before_step` may use: training subjects of the stacked folds.

    ``rows``, ``site`` and ``label`` are (F, W); a fold with fewer subjects is padded with site -1.
    :meth:`Method.share` gets one without features and replays.
    """

    def __init__(
        self,
        problem: "Problem",
        train: Sequence[np.ndarray],
        block_lengths: Sequence[float],
        features: "FeatureStore | None" = None,
        replay: Replay | None = None,
    ) -> None:
        self.replay = replay
        self._problem = problem
        self._train = train
        self._block_lengths = block_lengths
        self._features = features
        self._plans: dict[tuple, list] = {}
        # Equal for all folds of the split file, whichever of them are here.
        width = max(len(fold.train) for fold in problem.folds)
        rows = np.zeros((len(train), width), np.int64)
        site = np.full((len(train), width), -1)
        for fold, members in enumerate(train):
            rows[fold, : len(members)] = members
            numbers = np.unique(problem.cohort.site[members], return_inverse=True)[1]
            site[fold, : len(members)] = numbers
        self.rows = torch.as_tensor(rows, device=problem.device)
        self.site = torch.as_tensor(site, device=problem.device)
        self.label = torch.as_tensor(problem.label[rows], device=problem.device)
        self.n_subjects = len(problem.cohort.subjects)
        # The number of the current refresh lives on the device, so that a replay can read it.
        self.refresh = torch.zeros((), dtype=torch.int64, device=problem.device)

    def full_scans(self, graphs: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Rows (F, n) and full-scan features of all folds' training subjects, n at a time."""
        for rows in self.rows.split(graphs, dim=1):
            yield rows, self._features.gather(rows)

    def inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """What the method needs of the subjects in ``rows``."""
        return gather(self._problem.inputs, rows)

    def reestimates(
        self, n_resamples: int, refresh: int | Tensor, scale: float, graphs: int
    ) -> Iterator[Chunk]:
        """All training subjects of all folds, about ``graphs`` re-estimates at a time.

        ``scale`` multiplies the folds' estimated block lengths before rounding and clipping.
        """
        plan = (n_resamples, scale, graphs)
        if plan not in self._plans:
            self._plans[plan] = self._plan(scale, max(1, graphs // n_resamples))
        for rows, folds, length in self._plans[plan]:
            fc = self._problem.scans.reestimate(rows, length, refresh, n_resamples)
            yield Chunk(rows, folds, fc)

    def _plan(self, scale: float, step: int) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Rows, folds and block length of every chunk, on the device."""
        lengths = np.array([round_half_up(scale * length) for length in self._block_lengths])
        member = np.zeros((self.n_subjects, len(self._train)), bool)
        for fold, rows in enumerate(self._train):
            member[rows, fold] = True
        plan = []
        for length in np.unique(lengths):
            patterns, inverse = np.unique(member & (lengths == length), axis=0, return_inverse=True)
            for number, pattern in enumerate(patterns):
                if not pattern.any():
                    continue
                rows = np.flatnonzero(inverse == number)
                for start in range(0, len(rows), step):
                    chunk = (rows[start : start + step], np.flatnonzero(pattern), length)
                    plan.append(
                        tuple(torch.as_tensor(part, device=self._problem.device) for part in chunk)
                    )
        return plan


class FeatureStore:
    """Features of every subject under every fold, kept on the device where they fit.

    ``shared`` features do not depend on the fold and are kept once. What does not fit is computed
    from FC each time it is asked for: slower, the same numbers.
    """

    def __init__(
        self, stack: "FoldStack", inputs: dict[str, Tensor], shared: bool, budget: int
    ) -> None:
        self._stack = stack
        self._inputs = inputs
        self._shared = shared
        self._cache: dict[str, Tensor] | None = None
        count = next(iter(inputs.values())).shape[0]
        probe = self._compute(torch.zeros((len(stack), 1), dtype=torch.int64, device=stack.device))
        per_subject = sum(value[0].nbytes for value in probe.values())
        self.bytes = count * per_subject * (1 if shared else len(stack))
        if self.bytes <= budget:
            self._cache = self._fill(probe, count)

    def _compute(self, index: Tensor, folds: Tensor | None = None) -> dict[str, Tensor]:
        return self._stack.call("features", gather(self._inputs, index), folds=folds)

    def _fill(self, probe: dict[str, Tensor], count: int) -> dict[str, Tensor]:
        folds = 1 if self._shared else len(self._stack)
        cache = {
            name: value.new_empty((folds, count, *value.shape[2:])) for name, value in probe.items()
        }
        step = 32
        for start in range(0, count, step):
            rows = torch.arange(start, min(start + step, count), device=self._stack.device)
            part = gather(self._inputs, rows)
            chosen = slice(1) if self._shared else None
            computed = self._stack.call("features", part, shared=True, folds=chosen)
            for name, value in computed.items():
                # A slice is copied; rows by number would be sorted first on a GPU.
                cache[name][:, start : start + step] = value
        return cache

    def keep(self, folds: Tensor) -> None:
        """Drop all folds but these, as the stack has done."""
        if self._cache is not None and not self._shared:
            self._cache = {name: value[folds] for name, value in self._cache.items()}

    def gather(self, index: Tensor, folds: Tensor | None = None) -> dict[str, Tensor]:
        """Features of subjects ``index`` (F, B) in all folds, or in those of ``folds``."""
        if self._cache is None:
            return self._compute(index, folds)
        fold = torch.arange(len(index), device=index.device) if folds is None else folds
        fold = fold[:, None] * (not self._shared)
        return {name: value[fold, index] for name, value in self._cache.items()}
