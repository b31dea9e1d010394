"""One training run, ready on the device: cohort, folds, labels and names for randomness."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.cohort import Cohort, TrainRows, TrainView
from brio_core.methods.hyperparameters import Hyperparameters
from brio_core.methods.interface import Features, Method, PathMethod, initialise
from brio_core.methods.training_scans import Scans, Sources
from brio_core.system.errors import BrioError
from brio_core.system.residence import Table, gather, half_of_free_memory, place_on_device, tabulate
from brio_core.system.seeds import derive_seed

# What a method may need of a subject that is too large to be held more than once.
SCANS = ("fc", "bold")


@dataclass(frozen=True)
class Fold:
    """Rows of one fold in the cohort."""

    name: str
    train: np.ndarray
    test: np.ndarray
    validation: np.ndarray
    validation_groups: tuple[np.ndarray, ...]
    block_length: float


def read_folds(cohort: Cohort, split: dict, block_length: dict) -> list[Fold]:
    """The folds of a split file, checked against the cohort and the block-length file."""
    if tuple(split["subjects"]) != cohort.subjects:
        raise BrioError(
            f"the split file of cohort {split['cohort']!r} lists other subjects than its "
            "participants.tsv; run the workflow again so that both belong together"
        )
    if block_length["split_checksum"] != split["checksum"]:
        raise BrioError(
            "the block-length file belongs to another split file; run the workflow again"
        )
    estimates = {fold["name"]: fold["estimate"] for fold in block_length["folds"]}
    rows = lambda values: np.asarray(values, np.int64)  # noqa: E731
    return [
        Fold(
            fold["name"],
            rows(fold["train"]),
            rows(fold["test"]),
            rows(fold["validation"]),
            tuple(rows(group) for group in fold["validation_groups"]),
            estimates[fold["name"]],
        )
        for fold in split["folds"]
    ]


class Problem:
    """Everything a fit needs, independent of how many folds are fitted together."""

    def __init__(
        self,
        cohort: Cohort,
        split: dict,
        folds: Sequence[Fold],
        method: type[Method],
        hyperparameters: Hyperparameters,
        variant: str,
        seed: int,
        device: torch.device,
        memory_budget: int | None = None,
        memory_limit: int | None = None,
    ) -> None:
        """``memory_budget``: bytes on the device for a table; default half of what is free.

        ``memory_limit``: bytes of the host that the process may have in all.
        """
        self.cohort = cohort
        self.label = np.asarray(split["label"], np.int64)
        self.folds = list(folds)
        self.method = method
        self.hyperparameters = hyperparameters
        self.variant = variant
        self.seed = seed
        self.device = device
        self._memory_budget = memory_budget
        self._memory_limit = memory_limit

    @property
    def memory_budget(self) -> int:
        """Bytes that scans, or features cached from them, may take on the device."""
        if self._memory_budget is None:
            return half_of_free_memory(self.device, self._memory_limit)
        return self._memory_budget

    @cached_property
    def inputs(self) -> dict[str, Table]:
        """What the method needs of every subject, on the device once per cell if it fits."""
        self.cohort.series.require_frames(self.method.min_frames, self.method.name)
        small = {
            "frames": self.cohort.series.frames,
            "covariates": self.cohort.covariates,
            "row": np.arange(len(self.cohort.subjects)),
        }
        return {
            need: self._scan_table(need)
            if need in SCANS
            else torch.as_tensor(small[need], device=self.device)
            for need in self.method.needs
        }

    def _scan_table(self, need: str) -> Table:
        if need == "bold":
            return self.scans.bold
        return place_on_device(self.cohort.fc, self.device, self._scan_budget)

    @property
    def _scan_budget(self) -> int:
        # A path method reads every scan a few times only: its file will do.
        return 0 if self.fits_paths else self.memory_budget

    @cached_property
    def scans(self) -> Scans:
        """Series, for methods that read them or re-estimate FC."""
        seed = 0 if self.fits_paths else self.seed
        return Scans(self.cohort, self.device, seed, self._scan_budget)

    @property
    def fits_paths(self) -> bool:
        """Whether the method is fitted exactly, which no seed may change."""
        return issubclass(self.method, PathMethod)

    @cached_property
    def shared_features(self) -> Features | None:
        """Features of every subject, once for all folds, of a path method, if memory allows it."""
        if not (self.fits_paths and self.method.features_are_shared):
            return None
        n_rois, n_sites = self.cohort.fc.shape[-1], self.n_sites(self.folds[0])
        module = self.method(self.hyperparameters, n_rois, n_sites).to(self.device)

        def make(rows: Tensor) -> Features:
            return module.features(gather(self.inputs, rows))

        with torch.no_grad():
            return tabulate(make, len(self.cohort.subjects), 32, self.memory_budget, self.device)

    @cached_property
    def shared_statistics(self) -> dict[str, Features]:
        """What the method finds out about the training scans of every fold in one pass."""
        sources = Sources(
            self, [fold.train for fold in self.folds], [fold.block_length for fold in self.folds]
        )
        found = self.method.share(sources, self.hyperparameters)
        return {fold.name: mapping for fold, mapping in zip(self.folds, found)}

    def seed_key(self, fold: Fold, purpose: str) -> tuple[object, ...]:
        """The words that all randomness of a fold is derived from."""
        return (self.cohort.name, fold.name, self.variant, self.seed, purpose)

    def view(self, fold: Fold) -> TrainView:
        """The training subjects of a fold."""
        names, site = np.unique(self.cohort.site[fold.train], return_inverse=True)
        rows = torch.as_tensor(fold.train, device=self.device)
        if self.shared_features is None:
            chosen = {
                name: TrainRows(table, rows) if name in SCANS else table[rows]
                for name, table in self.inputs.items()
            }
        else:
            features = self.shared_features.items()
            chosen = {"features": {name: TrainRows(table, rows) for name, table in features}}
        return TrainView(
            **chosen,
            shared=self.shared_statistics.get(fold.name, {}),
            site=torch.as_tensor(site, device=self.device),
            label=torch.as_tensor(self.label[fold.train], device=self.device),
            n_sites=len(names),
            n_rois=self.cohort.fc.shape[-1],
            rois=self.cohort.series.rois,
        )

    def module(self, fold: Fold) -> Method:
        """A fresh module of the method with the fold's statistics fitted."""
        view = self.view(fold)

        def build() -> Method:
            module = self.method(self.hyperparameters, view.n_rois, view.n_sites).to(self.device)
            module.prepare(view)
            return module

        return initialise(build, derive_seed(*self.seed_key(fold, "initial weights")))

    def with_hyperparameters(self, chosen: dict[str, Any]) -> "Problem":
        """The same problem with other hyperparameters; scans on the device are shared."""
        if not chosen:
            return self
        other = copy.copy(self)
        other.hyperparameters = replace(self.hyperparameters, **chosen)
        for made_with_settings in ("shared_features", "shared_statistics"):
            other.__dict__.pop(made_with_settings, None)
        return other

    def restored(self, fold: Fold, state: dict[str, Tensor], chosen: dict[str, Any]) -> Method:
        """The module of a fold with a stored state, in evaluation mode."""
        if self.method.needs_population:
            module = self.with_hyperparameters(chosen).module(fold)
        else:
            hyperparameters, n_rois = (
                replace(self.hyperparameters, **chosen),
                self.cohort.fc.shape[-1],
            )
            module = self.method(hyperparameters, n_rois, self.n_sites(fold)).to(self.device)
        module.load_state_dict(state)
        return module.eval()

    def stack_key(self, fold: Fold) -> tuple[int, int]:
        """Folds with equal keys have equal shapes and can train together."""
        frames = self.cohort.series.frames[fold.train]
        return self.n_sites(fold), self.method.scan_length(self.hyperparameters, frames)

    def n_sites(self, fold: Fold) -> int:
        """Number of training sites of a fold."""
        return len(np.unique(self.cohort.site[fold.train]))
