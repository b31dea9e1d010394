"""The training scans of several folds, their re-estimates and their features.

Folds with the same block length share re-estimates, because the resampled frames are keyed by
subject and not by fold. Re-estimates are given only to the folds that train on their subjects.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.block_length import clipped_block_length, round_half_up
from brio_core.connectivity.fisher_z import standardise
from brio_core.connectivity.reestimation import (
    block_multiplicities,
    ragged_block_indices,
    reestimated_connectivity,
    refresh_keys,
)
from brio_core.methods.stack import FoldStack
from brio_core.system.replay import Replay
from brio_core.system.residence import Table, gather, rows_of, tabulate
from brio_core.system.rows import Rows

# Parts of the subjects whose resamples are drawn together.
PARTS_AT_ONCE = 32


def training_rows(table: Table, rows: Tensor) -> Rows:
    """The training subjects' rows of a table, copied when they are asked for: ``rows[:32]``."""
    return Rows(lambda chosen: rows_of(table, rows[chosen]), (len(rows), *table.shape[1:]))


@dataclass(frozen=True)
class TrainView:
    """What a method may see of one fold while it fits: the training subjects and nothing else.

    ``site`` counts the training sites of the fold from 0, in alphabetical order. Of the inputs only
    those that the method needs are there; ``bold`` is zero beyond ``frames``. A path method whose
    features do not depend on the fold gets its ``features`` in place of the inputs, computed once
    for all folds, unless they are larger than memory. ``shared`` is what :meth:`Method.share` found
    out for the fold. ``inner_folds`` numbers parts of the subjects that are to be left out in turn.
    """

    site: Tensor
    label: Tensor
    n_sites: int
    n_rois: int
    fc: Tensor | Rows | None = None
    bold: Tensor | Rows | None = None
    frames: Tensor | None = None
    covariates: Tensor | None = None
    row: Tensor | None = None
    site_number: Tensor | None = None
    rois: Rois | None = None
    features: dict[str, Tensor | Rows] | None = None
    shared: dict[str, Tensor] = field(default_factory=dict)
    inner_folds: Tensor | None = None

    def chunks(self, size: int) -> Iterator[dict[str, Tensor]]:
        """Shared features or else inputs of the training subjects, in order, ``size`` at a time."""
        names = ("fc", "bold", "frames", "covariates", "row", "site_number")
        inputs = {name: getattr(self, name) for name in names}
        tables = self.features or {name: one for name, one in inputs.items() if one is not None}
        for start in range(0, len(self.label), size):
            yield {name: table[start : start + size] for name, table in tables.items()}


class Scans:
    """Standardised series of a whole cohort, re-estimated on demand.

    Parameters
    ----------
    bold : callable
        Gives the series (N, T_max, P), zero beyond their frames; asked once, when needed.
    frames : (N,)
    keys : (N,)
        What all resampling of a subject is derived from.
    """

    def __init__(self, bold: Callable[[], Table], frames: Tensor, keys: Tensor) -> None:
        self._bold = bold
        self.frames = frames
        self.keys = keys

    @cached_property
    def bold(self) -> Table:
        return self._bold()

    def reestimate(
        self, rows: Tensor, block_length: Tensor, refresh: int | Tensor, n_resamples: int
    ) -> Tensor:
        """``n_resamples`` FC re-estimates of every subject in ``rows``, Eq. (fc_reestimation)."""
        weights = self.multiplicities(rows, block_length, refresh, n_resamples)
        return self.reweighted(rows, weights)

    def multiplicities(
        self, rows: Tensor, block_length: Tensor, refresh: int | Tensor, n_resamples: int
    ) -> Tensor:
        """How often each resample holds each frame (n, K, T_max)."""
        draw = self._draw(rows, block_length, refresh, n_resamples)
        return block_multiplicities(*draw, self.bold.shape[1])

    def reweighted(self, rows: Tensor, weights: Tensor) -> Tensor:
        """FC (n, K, P, P) whose frames have these weights (n, K, T_max)."""
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


class TrainingScans:
    """What :meth:`GradientMethod.before_step` may use: training subjects of the stacked folds.

    :meth:`Method.share` gets one without features and replays.

    Parameters
    ----------
    rows, site, label : (F, W)
        A fold with fewer subjects is padded with site -1.
    block_lengths : (F,)
    inputs : mapping
        What the method needs of every subject of the cohort.
    scans : Scans
    """

    def __init__(
        self,
        rows: np.ndarray,
        site: np.ndarray,
        label: np.ndarray,
        block_lengths: Sequence[float],
        inputs: dict[str, Table],
        scans: Scans,
        features: "FeatureStore | None" = None,
        replay: Replay | None = None,
    ) -> None:
        device = scans.frames.device
        self.rows, self.site, self.label = (
            torch.as_tensor(values, device=device) for values in (rows, site, label)
        )
        self.n_subjects = len(scans.frames)
        # The number of the current refresh lives on the device, so that a replay can read it.
        self.refresh = torch.zeros((), dtype=torch.int64, device=device)
        self.replay = replay
        self._train = [members[here >= 0] for members, here in zip(rows, site)]
        self._block_lengths = block_lengths
        self._inputs = inputs
        self._scans = scans
        self._features = features
        self._plans: dict[tuple, list] = {}

    def full_scans(self, graphs: int) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
        """Rows (F, n) and full-scan features of all folds' training subjects, n at a time."""
        for rows in self.rows.split(graphs, dim=1):
            yield rows, self._features.gather(rows)

    @property
    def frames(self) -> Tensor:
        """How long the scans in ``rows`` are, (F, W)."""
        return self._scans.frames[self.rows]

    def inputs(self, rows: Tensor) -> dict[str, Tensor]:
        """What the method needs of the subjects in ``rows``."""
        return gather(self._inputs, rows)

    def reestimates(
        self, n_resamples: int, refresh: int | Tensor, scale: float, graphs: int
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All training subjects of all folds, about ``graphs`` re-estimates at a time.

        Each time some subjects, the folds that they train in, and their FC (n, K, P, P).
        ``scale`` multiplies the folds' estimated block lengths before rounding and clipping.
        """
        plan = (n_resamples, scale, graphs)
        if plan not in self._plans:
            self._plans[plan] = self._plan(scale, max(1, graphs // n_resamples))
        for rows, length, parts in self._plans[plan]:
            # Draws are many small operations, so those of many subjects are made together.
            weights = self._scans.multiplicities(rows, length, refresh, n_resamples)
            sizes = [len(some) for some, _ in parts]
            for (some, folds), own in zip(parts, weights.split(sizes)):
                yield some, folds, self._scans.reweighted(some, own)

    def _plan(self, scale: float, step: int) -> list[tuple[Tensor, Tensor, list]]:
        """Subjects with their block length, and the parts of them with the parts' folds."""
        lengths = np.array([round_half_up(scale * length) for length in self._block_lengths])
        member = np.zeros((self.n_subjects, len(self._train)), bool)
        for fold, rows in enumerate(self._train):
            member[rows, fold] = True
        on_device = partial(torch.as_tensor, device=self.rows.device)
        plan = []
        for length in np.unique(lengths):
            patterns, inverse = np.unique(member & (lengths == length), axis=0, return_inverse=True)
            parts = [
                (rows, on_device(np.flatnonzero(pattern)))
                for number, pattern in enumerate(patterns)
                if pattern.any()
                for rows in on_device(np.flatnonzero(inverse == number)).split(step)
            ]
            for start in range(0, len(parts), PARTS_AT_ONCE):
                some = parts[start : start + PARTS_AT_ONCE]
                plan.append((torch.cat([rows for rows, _ in some]), on_device(length), some))
        return plan


class FeatureStore:
    """Features of every subject under every fold, kept on the device where they fit.

    ``shared`` features do not depend on the fold and are kept once. What does not fit is computed
    from FC each time it is asked for: slower, the same numbers.
    """

    def __init__(
        self, stack: FoldStack, inputs: dict[str, Table], shared: bool, budget: int
    ) -> None:
        self._stack = stack
        self._inputs = inputs
        self._shared = shared
        count = next(iter(inputs.values())).shape[0]
        self._cache = tabulate(self._subjects, count, 32, budget, stack.device)
        # Which column of the tables is each fold's, and how many columns they have.
        self._width = len(stack)
        self._columns = torch.arange(self._width, device=stack.device)

    def _subjects(self, rows: Tensor) -> dict[str, Tensor]:
        """Features (n, folds, ...) of some subjects in every fold, or in one for all."""
        part = gather(self._inputs, rows)
        folds = slice(1) if self._shared else None
        made = self._stack.call("features", part, shared=True, folds=folds)
        return {name: value.transpose(0, 1) for name, value in made.items()}

    def keep(self, folds: Tensor) -> None:
        """Drop all folds but these, as the stack has done."""
        if self._cache is None or self._shared:
            return
        self._columns = self._columns[folds]
        # Tables are copied for half of their columns only: both copies need memory at once.
        if 2 * len(folds) <= self._width:
            self._cache = {name: value[:, self._columns] for name, value in self._cache.items()}
            self._width = len(folds)
            self._columns = torch.arange(self._width, device=folds.device)

    def gather(self, index: Tensor, folds: Tensor | None = None) -> dict[str, Tensor]:
        """Features of subjects ``index`` (F, B) in all folds, or in those of ``folds``."""
        if self._cache is None:
            return self._stack.call("features", gather(self._inputs, index), folds=folds)
        if not self._shared:
            columns = self._columns if folds is None else self._columns[folds]
            index = index * self._width + columns[:, None]
        # Whole rows of flat tables: a GPU copies them many times faster than by two indices.
        return {
            name: value.flatten(0, 1).index_select(0, index.flatten()).unflatten(0, index.shape)
            for name, value in self._cache.items()
        }
