"""Gradient training of several folds at once; no method's name appears here."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn import functional

from brio_core.methods.interface import Batch, GradientMethod
from brio_core.methods.stack import FoldStack, State
from brio_core.methods.training_scans import FeatureStore
from brio_core.system.cli import Progress
from brio_core.system.randomness import fold_in
from brio_core.system.replay import Replay
from brio_core.system.seeds import derive_seed
from brio_core.training.adam import Adam
from brio_core.training.batches import Batches
from brio_core.training.data import Fold
from brio_core.training.problem import Problem
from brio_core.training.results import FoldResult
from brio_core.training.selection import ValidationAuc, improves

# What is known of every fold besides its model.
PER_FOLD = ("best_auc", "best_loss", "best_epoch", "risen_epoch", "last_epoch", "active")
# Validation subjects of one fold that are scored together, and numbers of their matrices.
VALIDATED_AT_ONCE, NUMBERS_AT_ONCE = 1024, 2**25
# Folds that have stopped leave a GPU once that saves so many epochs of all. Capturing anew what the
# others do took as long as up to three. No clock decides: products of fewer folds are rounded
# otherwise.
EPOCHS_SAVED = 4


class GradientFit:
    """A group of folds in training: stacked state, optimiser, checkpoint choice per fold."""

    def __init__(self, problem: Problem, folds: Sequence[Fold], memory_budget: int) -> None:
        self.problem = problem
        self.folds = list(folds)
        self.hyperparameters = problem.trial.hyperparameters
        self._stop = problem.trial.stop
        self.method: type[GradientMethod] = problem.trial.method
        self.device = device = problem.data.device
        self.stack = FoldStack([problem.module(fold) for fold in folds])
        self.features = FeatureStore(
            self.stack, problem.inputs, problem.trial.shares_features, memory_budget
        )
        self.optimiser = Adam(self.stack.parameters, self.hyperparameters)
        self.batches = Batches(problem, folds)
        keys = [derive_seed(*problem.seed_key(fold, "noise")) for fold in folds]
        steps = torch.arange(self.hyperparameters.epochs * self.batches.per_epoch, device=device)
        # Those of all steps at once: a key is made by two dozen tiny operations.
        self._keys = fold_in(torch.tensor(keys, device=device)[:, None], steps)
        self._counter = torch.zeros(1, dtype=torch.int64, device=device)

        self.epoch = 0
        self._epoch = torch.zeros((), dtype=torch.int64, device=device)
        self._auc = torch.zeros(len(folds), dtype=torch.float64, device=device)
        self._loss = torch.zeros_like(self._auc)
        self.best: State = {name: value.clone() for name, value in self.stack.persistent().items()}
        self.best_auc = torch.full((len(folds),), -1.0, dtype=torch.float64, device=device)
        self.best_loss = torch.full_like(self.best_auc, torch.inf)
        self.best_epoch = torch.zeros(len(folds), dtype=torch.int64, device=device)
        # Patience counts from the last rise of the AUC: among equals there is always a better one.
        self.risen_epoch = torch.zeros_like(self.best_epoch)
        self.last_epoch = torch.zeros(len(folds), dtype=torch.int64, device=device)
        self.active = torch.ones(len(folds), dtype=torch.bool, device=device)
        self.history: list[dict[str, list[float]]] = []
        self.finished: list[FoldResult] = []
        self._replay = Replay(device)
        self._rebuild_tables()

    def _rebuild_tables(self) -> None:
        """What belongs to the folds as they are now, and to no state that training changes."""
        self.scans = self.problem.training_scans(self.folds, self.features, self._replay)
        groups = [fold.validation_groups for fold in self.folds]
        self._validation = ValidationAuc(groups, self.problem.data.label, self.device)
        # Not of how many folds are here: a fold's numbers do not depend on the others.
        at_once = min(VALIDATED_AT_ONCE, max(1, NUMBERS_AT_ONCE // self.problem.data.n_rois**2))
        self._parts = list(self._validation.parts(at_once))
        shape = len(groups), max(map(len, groups))
        self._groups = torch.zeros(shape, dtype=torch.float64, device=self.device)
        self._start_totals()

    def _start_totals(self) -> None:
        # A phase need not log what those before it did; its epochs have zeros there.
        self._totals = {
            name: torch.zeros(len(self.folds), device=self.device)
            for name in (self.history or [{}])[-1]
            if not name.startswith("validation_")
        }

    def _set_rate(self) -> None:
        """The learning rate of the current step: half a cosine whose end is the last step."""
        hyperparameters = self.hyperparameters
        if hyperparameters.schedule == "constant":
            return
        first, last = hyperparameters.learning_rate, hyperparameters.final_learning_rate
        done = (self._counter[0] + 1) / (hyperparameters.epochs * self.batches.per_epoch)
        self.optimiser.rate.copy_(last + 0.5 * (first - last) * (1 + torch.cos(torch.pi * done)))

    def run(self, save: Callable[["GradientFit"], None], title: str) -> None:
        """Train until the last epoch, or until every fold has lost its patience."""
        for _ in self.epochs(save, title):
            pass

    def epochs(self, save: Callable[["GradientFit"], None], title: str) -> Iterator[int]:
        """The same an epoch at a time. A GPU may still be at it while others have their turn."""
        last = self._stop or self.hyperparameters.epochs
        progress = Progress(title, last, self.epoch)
        while self.epoch < last and self._going_on():
            self.epoch += 1
            phase = self.method.phase(self.hyperparameters, self.epoch)
            if self.method.restarts(self.hyperparameters, self.epoch):
                self.optimiser.forget()
            for total in self._totals.values():
                total.zero_()
            for step in range(self.batches.per_epoch):
                number = (self.epoch - 1) * self.batches.per_epoch + step
                self.method.before_step(
                    self.stack, self.scans, self.hyperparameters, number, self.batches.per_epoch
                )
                self._replay(phase, partial(self._step, phase))
            self._epoch.fill_(self.epoch)
            self._replay("select", self._select)
            yield self.epoch
            self._record()
            progress.update(
                self.epoch, f"(best validation AUC {self.best_auc.clamp(min=0).mean():.3f})"
            )
            save(self)

    def _going_on(self) -> bool:
        """Whether any fold still trains; those that have stopped leave where that is worth it."""
        going = self.active.nonzero().flatten()
        least = EPOCHS_SAVED if self.device.type == "cuda" else 0
        if 0 < len(going) < len(self.folds) and self._saved(going) >= least:
            stopped = (~self.active).nonzero().flatten()
            self.finished += [self._result(index) for index in stopped.tolist()]
            self._keep(going)
        return len(going) > 0

    def _saved(self, going: Tensor) -> float:
        """Epochs of all folds whose work is saved at least, if only these go on."""
        risen, patience = self.risen_epoch[going].max().item(), self.hyperparameters.patience
        last = max(risen, self.hyperparameters.patient_until) + patience
        left = min(last, self.hyperparameters.epochs) - self.epoch
        return left * (1 - len(going) / len(self.folds))

    def _keep(self, folds: Tensor) -> None:
        """Drop all folds but these; the numbers of those that stay are untouched."""
        # What was captured holds memory, and is made anew for the others.
        self._replay.forget()
        del self.scans
        self.folds = [self.folds[index] for index in folds.tolist()]
        self.stack.keep(folds)
        self.features.keep(folds)
        self.batches.keep(folds)
        self.optimiser.keep(self.stack.parameters, folds)
        self.best = {name: value[folds] for name, value in self.best.items()}
        for name in ("_keys", "_auc", "_loss", *PER_FOLD):
            setattr(self, name, getattr(self, name)[folds])
        kept = folds.tolist()
        self.history = [
            {name: [values[index] for index in kept] for name, values in epoch.items()}
            for epoch in self.history
        ]
        self._rebuild_tables()

    def _step(self, phase: str) -> None:
        frozen = self.method.frozen(phase)
        learnt = {
            name: value.detach().requires_grad_()
            for name, value in self.stack.parameters.items()
            if not name.startswith(frozen or "\0")
        }
        fixed = {k: v for k, v in self.stack.parameters.items() if k not in learnt}
        single = self.stack.single("loss", training=True)

        def loss(learnt: State, buffers: State, batch: Batch, phase: str = phase) -> Any:
            def of_fold(learnt: State, fixed: State, buffers: State, batch: Batch) -> Any:
                return single({**learnt, **fixed}, buffers, batch, phase)

            return vmap(of_fold)(learnt, fixed, buffers, batch)

        self._set_rate()
        index, label, site = self.batches.take(self._counter)
        keys = self._keys.index_select(1, self._counter).squeeze(1)
        batch = Batch(self.features.gather(index), label, site, keys)
        half = self.hyperparameters.precision == "bfloat16"
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half):
            gradients, (value, logs) = self.method.gradient(
                self.hyperparameters, loss, learnt, self.stack.buffers, batch
            )
        self.optimiser.step(gradients)
        for name, number in {"loss": value, **logs}.items():
            if name not in self._totals:
                self._totals[name] = torch.zeros_like(number)
            self._totals[name] += number.detach()
        self._counter += 1

    @torch.no_grad()
    def _select(self) -> None:
        """Score the validation groups; keep the state of every fold that has improved."""
        hyperparameters, epoch = self.hyperparameters, self._epoch
        rows = torch.where(self.scans.site < 0, -1, self.scans.rows)
        self.method.before_selection(self.stack, self.features, rows)
        index = self._validation.index
        parts = []
        for folds, places, columns in self._parts:
            some = index[:, columns] if folds is None else index[folds, columns]
            part = self.stack.call("logits", self.features.gather(some, folds), folds=folds)
            # Folds without subjects there get the row of zeros behind all others.
            parts.append(part if folds is None else functional.pad(part, (0, 0, 0, 1))[places])
        logits = torch.cat(parts, dim=1)
        self._groups.copy_(self._validation.groups(logits))
        self._auc.copy_(self._validation.mean(self._groups))
        self._loss.copy_(self._validation.log_loss(logits))
        better = improves(self._auc, self._loss, self.best_auc, self.best_loss)
        better &= self.active & (epoch >= (self._stop or hyperparameters.first_epoch))
        for name, value in self.stack.persistent().items():
            mask = better.view(-1, *([1] * (value.dim() - 1)))
            self.best[name].copy_(torch.where(mask, value, self.best[name]))
        risen = better & (self._auc > self.best_auc)
        self.risen_epoch.copy_(torch.where(risen, epoch, self.risen_epoch))
        self.best_auc.copy_(torch.where(better, self._auc, self.best_auc))
        self.best_loss.copy_(torch.where(better, self._loss, self.best_loss))
        self.best_epoch.copy_(torch.where(better, epoch, self.best_epoch))
        self.last_epoch.copy_(torch.where(self.active, epoch, self.last_epoch))
        if hyperparameters.patience and not self._stop:
            waited = epoch - self.risen_epoch.clamp(min=hyperparameters.patient_until)
            self.active &= waited < hyperparameters.patience

    def _record(self) -> None:
        means = {name: total / self.batches.per_epoch for name, total in self._totals.items()}
        groups = dict(zip(self._validation.columns, self._groups.unbind(1)))
        validated = {"validation_auc": self._auc, **groups, "validation_log_loss": self._loss}
        columns = {**validated, **means}
        table = torch.stack([column.double() for column in columns.values()]).cpu().tolist()
        self.history.append(dict(zip(columns, table)))

    def results(self) -> list[FoldResult]:
        """The selected checkpoints of all folds, in no particular order."""
        return self.finished + [self._result(index) for index in range(len(self.folds))]

    def _result(self, index: int) -> FoldResult:
        epochs = int(self.last_epoch[index])
        return FoldResult(
            self.folds[index].name,
            {name: value[index].clone() for name, value in self.best.items()},
            int(self.best_epoch[index]),
            float(self.best_auc[index]),
            float(self.best_loss[index]),
            epochs,
            [{name: row[index] for name, row in epoch.items()} for epoch in self.history[:epochs]],
        )

    def snapshot(self) -> dict[str, Any]:
        """All that is needed to go on from here with the same numbers."""
        return {
            "folds": [fold.name for fold in self.folds],
            "finished": [vars(result) for result in self.finished],
            "epoch": self.epoch,
            "state": self.stack.persistent(),
            "optimiser": self.optimiser.moments,
            "best": self.best,
            "history": self.history,
            **{name: getattr(self, name) for name in PER_FOLD},
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Continue from a snapshot."""
        self.finished = [FoldResult(**result) for result in snapshot["finished"]]
        names = [fold.name for fold in self.folds]
        if snapshot["folds"] != names:
            kept = [names.index(name) for name in snapshot["folds"]]
            self._keep(torch.tensor(kept, device=self.device))
        self.epoch = snapshot["epoch"]
        self.stack.load(snapshot["state"])
        self.optimiser.load(snapshot["optimiser"])
        self.history = snapshot["history"]
        self._start_totals()
        for name, value in snapshot["best"].items():
            self.best[name].copy_(value)
        for name in PER_FOLD:
            getattr(self, name).copy_(snapshot[name])
        self._counter.fill_(self.epoch * self.batches.per_epoch)
