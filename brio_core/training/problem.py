"""What is tried, and what comes of trying it on data: modules, and all that they are made of."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brio_core.connectivity import FISHER_Z
from brio_core.connectivity.graphs import upper_triangle
from brio_core.connectivity.kinds import connectivity_of
from brio_core.methods.hyperparameters import Hyperparameters
from brio_core.methods.interface import (
    SOURCES,
    VALIDATION,
    Features,
    Method,
    PathMethod,
)
from brio_core.methods.training_scans import (
    FeatureStore,
    Scans,
    TrainingScans,
    TrainView,
    training_rows,
)
from brio_core.system.replay import Replay
from brio_core.system.residence import Table, gather, rows_of, tabulate
from brio_core.system.seeds import derive_seed
from brio_core.training.data import SCANS, Fold, TrainingData


@dataclass(frozen=True)
class Trial:
    """What is tried: a method with hyperparameters; variant and seed are keys of its randomness.

    ``stop`` is the epoch, or the point of a path, that is kept where no validation chooses.
    """

    method: type[Method]
    hyperparameters: Hyperparameters
    variant: str
    seed: int
    stop: int | None = None

    @property
    def fits_paths(self) -> bool:
        """Whether the method is fitted exactly, which no seed may change."""
        return issubclass(self.method, PathMethod)

    @property
    def trains_on_sources(self) -> bool:
        """Whether validation subjects train too, and an inner choice replaces them."""
        return getattr(self.hyperparameters, "selection", VALIDATION) == SOURCES

    @property
    def rescales_connectivity(self) -> bool:
        """Whether each fold fits a factor of connectivity; an exact fit has no need of one."""
        return self.hyperparameters.connectivity != FISHER_Z and not self.fits_paths

    @property
    def shares_features(self) -> bool:
        """Whether all folds have the same features."""
        return self.method.features_are_shared and not self.rescales_connectivity


@dataclass(frozen=True, eq=False)
class Problem:
    """A trial on data: everything a fit needs, however many folds are fitted together."""

    data: TrainingData
    trial: Trial

    def with_hyperparameters(self, chosen: dict[str, Any]) -> "Problem":
        """The same with other values of some hyperparameters."""
        if not chosen:
            return self
        hyperparameters = replace(self.trial.hyperparameters, **chosen)
        return replace(self, trial=replace(self.trial, hyperparameters=hyperparameters))

    @cached_property
    def inputs(self) -> dict[str, Table]:
        """What the method needs of every subject."""
        method = self.trial.method
        self.data.cohort.series.require_frames(method.min_frames, method.name)
        needed = method.needed(self.trial.hyperparameters)
        return {need: self.data.table(need, self._keeps_scans) for need in needed}

    @property
    def _keeps_scans(self) -> bool:
        # A path method reads every scan a few times only: its file will do.
        return not self.trial.fits_paths

    @cached_property
    def scans(self) -> Scans:
        """Series, for methods that re-estimate FC."""
        seed = 0 if self.trial.fits_paths else self.trial.seed
        return self.data.scans(seed, self._keeps_scans)

    @cached_property
    def shared_features(self) -> Features | None:
        """Features of every subject, once for all folds, of a path method, if memory allows it."""
        data = self.data
        if not (self.trial.fits_paths and self.trial.shares_features):
            return None
        module = self._untrained(data.folds[0])

        def make(rows: Tensor) -> Features:
            return module.features(gather(self.inputs, rows))

        with torch.no_grad():
            count, budget = len(data.cohort.subjects), data.memory_budget
            return tabulate(make, count, 32, budget, data.device, threaded=True)

    def on_sources(self) -> "Problem":
        """The same with all source subjects in training; their features are those of here."""
        other = replace(self, data=self.data.on_sources())
        other.__dict__["shared_features"] = self.shared_features
        return other

    @cached_property
    def shared_statistics(self) -> dict[str, Features]:
        """What the method finds out about the training scans of every fold in one pass."""
        folds = self.data.folds
        found = self.trial.method.share(self.training_scans(folds), self.trial.hyperparameters)
        return {fold.name: mapping for fold, mapping in zip(folds, found)}

    def training_scans(
        self,
        folds: Sequence[Fold],
        features: FeatureStore | None = None,
        replay: Replay | None = None,
    ) -> TrainingScans:
        """The training subjects of some folds, for what happens between steps."""
        lengths = [fold.block_length for fold in folds]
        rows = self.data.training_rows(folds)
        return TrainingScans(*rows, lengths, self.inputs, self.scans, features, replay)

    def seed_key(self, fold: Fold, purpose: str) -> tuple[object, ...]:
        """What all randomness of a fold is derived from."""
        return (self.data.cohort.name, fold.name, self.trial.variant, self.trial.seed, purpose)

    def view(self, fold: Fold) -> TrainView:
        """The training subjects of a fold."""
        data = self.data
        rows = torch.as_tensor(fold.train, device=data.device)
        if self.shared_features is None:
            chosen = {
                name: training_rows(table, rows) if name in SCANS else table[rows]
                for name, table in self.inputs.items()
            }
        else:
            features = self.shared_features.items()
            chosen = {"features": {name: training_rows(table, rows) for name, table in features}}
        return TrainView(
            **chosen,
            shared=self.shared_statistics.get(fold.name, {}),
            site=torch.as_tensor(data.site_numbers(fold), device=data.device),
            label=torch.as_tensor(data.label[fold.train], device=data.device),
            n_sites=data.n_sites(fold),
            n_rois=data.n_rois,
            rois=data.cohort.series.rois,
            inner_folds=self._inner_folds(fold) if self.trial.trains_on_sources else None,
        )

    def _inner_folds(self, fold: Fold) -> Tensor:
        """The number of the validation group of every training subject."""
        number = torch.zeros(len(fold.train), dtype=torch.int64)
        for index, group in enumerate(fold.validation_groups):
            number[torch.as_tensor(np.isin(fold.train, group))] = index
        return number.to(self.data.device)

    def module(self, fold: Fold) -> Method:
        """A fresh module of the method with the fold's statistics fitted."""
        view = self.view(fold)
        # Initial weights depend on this seed alone.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(*self.seed_key(fold, "initial weights")))
            module = self._untrained(fold)
            if self.trial.rescales_connectivity:
                module.connectivity_factor.fill_(self._connectivity_factor(fold))
            module.prepare(view)
        return module

    def _connectivity_factor(self, fold: Fold) -> float:
        """What gives connectivity of the fold's training subjects the spread of their Fisher z."""
        moments = self._connectivity_moments[torch.as_tensor(fold.train)].mean(0)
        deviation = (moments[:, 1] - moments[:, 0].square()).sqrt()
        return float(deviation[0] / deviation[1]) if deviation[1] > 0 else 1.0

    @cached_property
    def _connectivity_moments(self) -> Tensor:
        """Mean and mean square of every subject's Fisher z and its kind of connectivity (N, 2, 2).

        They are of all pairs of ROIs.
        """
        asked, device = self.trial.hyperparameters, self.data.device
        rows = torch.arange(len(self.data.cohort.subjects), device=device)
        found = []
        for part in rows.split(32):
            fisher_z = rows_of(self.inputs["fc"], part)
            kind = connectivity_of(fisher_z, asked.connectivity, asked.shrinkage)
            edges = upper_triangle(torch.stack([fisher_z, kind], 1)).double()
            found.append(torch.stack([edges.mean(-1), edges.square().mean(-1)], -1).cpu())
        return torch.cat(found)

    def restored(self, fold: Fold, state: dict[str, Tensor], chosen: dict[str, Any]) -> Method:
        """The module of a fold with a stored state, in evaluation mode."""
        here = self.with_hyperparameters(chosen)
        population = self.trial.method.needs_population
        module = here.module(fold) if population else here._untrained(fold)
        module.load_state_dict(state)
        return module.eval()

    def _untrained(self, fold: Fold) -> Method:
        method, hyperparameters = self.trial.method, self.trial.hyperparameters
        module = method(hyperparameters, self.data.n_rois, self.data.n_sites(fold))
        return module.to(self.data.device)

    def stack_key(self, fold: Fold) -> tuple[int, int]:
        """Folds with equal keys have equal shapes and can train together."""
        frames = self.data.cohort.series.frames[fold.train]
        length = self.trial.method.scan_length(self.trial.hyperparameters, frames)
        return self.data.n_sites(fold), length

    def count_parameters(self) -> int:
        """Learnt numbers of one fold's module."""
        return sum(one.numel() for one in self._untrained(self.data.folds[0]).parameters())
