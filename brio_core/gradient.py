"""Gradient training of several folds at once; no method's name appears here."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import vmap

from brio_core.folds import FoldStack, State
from brio_core.methods.base import Batch, GradientMethod
from brio_core.problem import Fold, Problem
from brio_core.progress import Progress
from brio_core.randomness import fold_in
from brio_core.replay import Replay
from brio_core.samplers import schedule, steps_per_epoch
from brio_core.seeds import derive_seed, numpy_generator
from brio_core.selection import ValidationAuc
from brio_core.sources import FeatureStore, Sources

# Validation subjects of one fold that are scored together; few cohorts have more.
VALIDATED_AT_ONCE = 1024


class GradientFit:
    """A group of folds in training: stacked state, optimiser, checkpoint choice per fold."""

    def __init__(self, problem: Problem, folds: Sequence[Fold], memory_budget: int) -> None:
        self.problem = problem
        self.folds = list(folds)
        self.settings = problem.settings
        self.method: type[GradientMethod] = problem.method
        device = problem.device
        # Equal for all folds of the split file, whichever of them are in this group.
        sizes = [len(fold.train) for fold in problem.folds]
        n_sites = problem.n_sites(folds[0])
        self.steps_per_epoch = steps_per_epoch(self.settings, sizes, 2 * n_sites)

        self._replay = Replay(device)
        self.stack = FoldStack([problem.module(fold) for fold in folds])
        self.features = FeatureStore(
            self.stack, problem.inputs, self.method.features_are_shared, memory_budget
        )
        self.sources = Sources(
            problem,
            [fold.train for fold in folds],
            [fold.block_length for fold in folds],
            self.features,
            self._replay,
        )
        self.optimiser = self._make_optimiser()
        self._schedule, self._present = self._make_schedule()
        self._label = torch.as_tensor(problem.label, device=device)
        self._site = self._site_numbers()
        keys = [derive_seed(*problem.words(fold, "noise")) for fold in folds]
        self._keys = torch.tensor(keys, device=device)
        self._counter = torch.zeros(1, dtype=torch.int64, device=device)
        self._totals: dict[str, Tensor] = {}
        self._validation = ValidationAuc(
            [fold.validation_groups for fold in folds], problem.label, device
        )

        self.epoch = 0
        self._epoch = torch.zeros((), dtype=torch.int64, device=device)
        self._auc = torch.zeros(len(folds), dtype=torch.float64, device=device)
        self.best: State = {name: value.clone() for name, value in self.stack.persistent().items()}
        self.best_auc = torch.full((len(folds),), -1.0, dtype=torch.float64, device=device)
        self.best_epoch = torch.zeros(len(folds), dtype=torch.int64, device=device)
        self.last_epoch = torch.zeros(len(folds), dtype=torch.int64, device=device)
        self.active = torch.ones(len(folds), dtype=torch.bool, device=device)
        self.history: list[dict[str, list[float]]] = []

    def _make_schedule(self) -> tuple[Tensor, Tensor]:
        cohort, label = self.problem.cohort, self.problem.label
        steps = self.settings.epochs * self.steps_per_epoch
        largest = max(len(fold.train) for fold in self.problem.folds)
        rows, present = [], []
        for fold in self.folds:
            generator = numpy_generator(*self.problem.words(fold, "batches"))
            here = schedule(
                self.settings,
                cohort.site[fold.train],
                label[fold.train],
                steps,
                generator,
                largest,
            )
            present.append(here >= 0)
            rows.append(fold.train[np.where(here < 0, ~here, here)])
        device = self.problem.device
        return (
            torch.as_tensor(np.stack(rows), device=device),
            torch.as_tensor(np.stack(present), device=device),
        )

    def _make_optimiser(self) -> torch.optim.Optimizer:
        kind = {"adamw": torch.optim.AdamW, "adam": torch.optim.Adam}[self.settings.optimiser]
        on_gpu = self.problem.device.type == "cuda"
        rate: float | Tensor = self.settings.learning_rate
        if self.settings.schedule == "cosine":
            # A tensor, so that a captured step can read the rate of its own number.
            rate = torch.tensor(rate, device=self.problem.device)
        return kind(
            list(self.stack.parameters.values()),
            lr=rate,
            weight_decay=self.settings.weight_decay,
            capturable=on_gpu,
            fused=on_gpu,
        )

    def _set_rate(self) -> None:
        """The learning rate of the current step: half a cosine over all steps of training."""
        settings = self.settings
        if settings.schedule == "constant":
            return
        first, last = settings.learning_rate, settings.final_learning_rate
        done = self._counter[0] / (settings.epochs * self.steps_per_epoch)
        for group in self.optimiser.param_groups:
            group["lr"].copy_(last + 0.5 * (first - last) * (1 + torch.cos(torch.pi * done)))

    def _site_numbers(self) -> Tensor:
        # Each fold counts its own training sites from 0; other subjects are never asked for.
        site = self.problem.cohort.site
        numbers = np.zeros((len(self.folds), len(site)), np.int64)
        for index, fold in enumerate(self.folds):
            numbers[index, fold.train] = np.unique(site[fold.train], return_inverse=True)[1]
        return torch.as_tensor(numbers, device=self.problem.device)

    def run(self, save: Callable[["GradientFit"], None], title: str) -> None:
        """Train until the last epoch, or until every fold has lost its patience."""
        progress = Progress(title, self.settings.epochs, self.epoch)
        while self.epoch < self.settings.epochs and bool(self.active.any()):
            self.epoch += 1
            phase = self.method.phase(self.settings, self.epoch)
            if self.method.restarts(self.settings, self.epoch):
                self._forget_moments()
            for total in self._totals.values():
                total.zero_()
            for step in range(self.steps_per_epoch):
                number = (self.epoch - 1) * self.steps_per_epoch + step
                self.method.before_step(
                    self.stack, self.sources, self.settings, number, self.steps_per_epoch
                )
                self._replay(phase, partial(self._step, phase))
            self._epoch.fill_(self.epoch)
            self._replay("select", self._select)
            self._record()
            progress.update(
                self.epoch, f"(best validation AUC {self.best_auc.clamp(min=0).mean():.3f})"
            )
            save(self)

    def _forget_moments(self) -> None:
        # In place: captured CUDA graphs keep pointing at the same memory.
        for state in self.optimiser.state.values():
            for value in state.values():
                value.zero_()

    def _step(self, phase: str) -> None:
        frozen = self.method.frozen(phase)
        learnt = {
            k: v for k, v in self.stack.parameters.items() if not k.startswith(frozen or "\0")
        }
        fixed = {k: v for k, v in self.stack.parameters.items() if k not in learnt}
        single = self.stack.single("loss", training=True)

        def gradient(learnt: State, fixed: State, buffers: State, *batch: Any) -> Any:
            def loss(learnt: State, buffers: State, batch: Batch, phase: str = phase) -> Any:
                return single({**learnt, **fixed}, buffers, batch, phase)

            return self.method.gradient(self.settings, loss, learnt, buffers, Batch(*batch))

        self._set_rate()
        index = self._schedule.index_select(1, self._counter).squeeze(1)
        present = self._present.index_select(1, self._counter).squeeze(1)
        half = self.settings.precision == "bfloat16"
        with torch.autocast(self.problem.device.type, torch.bfloat16, enabled=half):
            gradients, (value, logs) = vmap(gradient)(
                learnt,
                fixed,
                self.stack.buffers,
                self.features.gather(index),
                self._label[index],
                torch.where(present, self._site.gather(1, index), -1),
                fold_in(self._keys, self._counter),
            )
        for name, parameter in self.stack.parameters.items():
            # Fused AdamW takes contiguous gradients only.
            gradient = gradients.get(name)
            parameter.grad = None if gradient is None else gradient.contiguous()
        self.optimiser.step()
        for name, number in {"loss": value, **logs}.items():
            if name not in self._totals:
                self._totals[name] = torch.zeros_like(number)
            self._totals[name] += number.detach()
        self._counter += 1

    @torch.no_grad()
    def _select(self) -> None:
        """Score the validation groups; keep the state of every fold that has improved."""
        settings, epoch = self.settings, self._epoch
        rows = torch.where(self.sources.site < 0, -1, self.sources.rows)
        self.method.before_selection(self.stack, self.features, rows)
        parts = [
            self.stack.call("logits", self.features.gather(index))
            for index in self._validation.index.split(VALIDATED_AT_ONCE, dim=1)
        ]
        self._auc.copy_(self._validation(torch.cat(parts, dim=1)))
        better = self.active & (self._auc > self.best_auc) & (epoch >= settings.first_epoch)
        for name, value in self.stack.persistent().items():
            mask = better.view(-1, *([1] * (value.dim() - 1)))
            self.best[name].copy_(torch.where(mask, value, self.best[name]))
        self.best_auc.copy_(torch.where(better, self._auc, self.best_auc))
        self.best_epoch.copy_(torch.where(better, epoch, self.best_epoch))
        self.last_epoch.copy_(torch.where(self.active, epoch, self.last_epoch))
        if settings.patience:
            waited = epoch - self.best_epoch.clamp(min=settings.first_epoch - 1)
            self.active &= waited < settings.patience

    def _record(self) -> None:
        means = {name: total / self.steps_per_epoch for name, total in self._totals.items()}
        columns = {"validation_auc": self._auc, **means}
        table = torch.stack([column.double() for column in columns.values()]).cpu().tolist()
        self.history.append(dict(zip(columns, table)))

    def snapshot(self) -> dict[str, Any]:
        """All that is needed to go on from here with the same numbers."""
        return {
            "epoch": self.epoch,
            "state": self.stack.persistent(),
            "optimiser": self.optimiser.state_dict(),
            "best": self.best,
            "best_auc": self.best_auc,
            "best_epoch": self.best_epoch,
            "last_epoch": self.last_epoch,
            "active": self.active,
            "history": self.history,
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self.epoch = snapshot["epoch"]
        self.stack.load(snapshot["state"])
        self.optimiser.load_state_dict(snapshot["optimiser"])
        self.history = snapshot["history"]
        for name, value in snapshot["best"].items():
            self.best[name].copy_(value)
        for name in ("best_auc", "best_epoch", "last_epoch", "active"):
            getattr(self, name).copy_(snapshot[name])
        self._counter.fill_(self.epoch * self.steps_per_epoch)
