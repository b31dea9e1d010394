"""Fit all folds of trials, as many at once as the machine allows, and search hyperparameters."""

import gc
import itertools
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

import torch

from brio_core.methods.interface import Method
from brio_core.system.errors import BrioError
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.data import Fold
from brio_core.training.gradient import GradientFit
from brio_core.training.penalty_path import fit_paths
from brio_core.training.problem import Problem
from brio_core.training.results import FoldResult
from brio_core.training.selection import improves

# Stacks that share a GPU. On an H200 five seeds took 0.73 to 0.88 of what they take in sequence.
PARTS_AT_ONCE = 5


@dataclass(frozen=True, eq=False)
class Part:
    """Folds of a problem that train in one stack, and where their results go."""

    problem: Problem
    folds: list[Fold]
    checkpoints: Checkpoints
    results: dict[str, FoldResult]

    @property
    def is_done(self) -> bool:
        """Whether the results are there."""
        return self.folds[0].name in self.results

    def halves(self) -> list["Part"]:
        """Two smaller parts, for a GPU whose memory is too small for this one."""
        half = (len(self.folds) + 1) // 2
        if half == len(self.folds):
            raise BrioError(
                f"fold {self.folds[0].name!r} alone does not fit into the memory of "
                f"{torch.cuda.get_device_name()}; use a larger GPU or smaller hyperparameters"
            )
        print(
            f"out of GPU memory: {half} folds at a time instead of {len(self.folds)}",
            file=sys.stderr,
        )
        return [replace(self, folds=some) for some in (self.folds[:half], self.folds[half:])]

    def epochs(self) -> Iterator[int]:
        """Train, an epoch at a time, and put what the folds come to into ``results``."""
        names, device = [fold.name for fold in self.folds], self.problem.data.device
        left = self.checkpoints.load(names, device) or {}
        if "results" in left:
            self.results.update({one["name"]: FoldResult(**one) for one in left["results"]})
            return
        fit = GradientFit(self.problem, self.folds, self.problem.data.memory_budget)
        trial = self.problem.trial
        title = f"{trial.variant} seed {trial.seed}, {len(names)} folds"
        if left:
            fit.restore(left)
            print(f"{title}: continuing after epoch {fit.epoch}", file=sys.stderr)
        if device.type == "cuda":
            # What was made here may be read by other parts.
            torch.cuda.synchronize()
        yield from fit.epochs(lambda fit: self.checkpoints.save(names, fit.snapshot()), title)
        found = [replace(result, together=len(names)) for result in fit.results()]
        # Others may follow or fail, so results are kept. They are a quarter the size of a snapshot.
        self.checkpoints.save(names, {"results": [vars(result) for result in found]}, always=True)
        if device.type == "cuda":
            torch.cuda.synchronize()
        self.results.update({result.name: result for result in found})


def train(
    problem: Problem, checkpoints: Checkpoints, group_size: int | None = None
) -> list[FoldResult]:
    """Fit every fold; results come in the order of the split file."""
    return train_problems([problem], [checkpoints], group_size)[0]


def train_problems(
    problems: Sequence[Problem],
    checkpoints: Sequence[Checkpoints],
    group_size: int | None = None,
) -> list[list[FoldResult]]:
    """Fit every fold of problems on the same data, as many at once as the machine allows."""
    if problems[0].trial.fits_paths:
        return [fit_paths(*one) for one in zip(problems, checkpoints)]
    device = problems[0].data.device
    found: list[dict[str, FoldResult]] = [{} for _ in problems]
    left = [
        Part(problem, group, kept, results)
        for problem, kept, results in zip(problems, checkpoints, found)
        for group in groups(problem, group_size)
    ]
    at_once = _at_once(device)
    while left:
        with suppress(torch.cuda.OutOfMemoryError):
            _train_in_turn(left, at_once)
        # After it, so that the failed attempt's tensors are free.
        _free_memory(device)
        left = [part for part in left if not part.is_done]
        if left:
            at_once = min(at_once, len(left)) // 2
            if at_once:
                print(f"out of GPU memory: {at_once} groups of folds at once", file=sys.stderr)
            else:
                at_once, left = 1, [*left[0].halves(), *left[1:]]
    return [[results[fold.name] for fold in problems[0].data.folds] for results in found]


def groups(problem: Problem, group_size: int | None = None) -> Iterator[list[Fold]]:
    """Folds that train together: those of equal shapes, ``group_size`` at most."""
    by_shape: dict[tuple[int, int], list[Fold]] = {}
    for fold in problem.data.folds:
        by_shape.setdefault(problem.stack_key(fold), []).append(fold)
    for folds in by_shape.values():
        size = group_size or len(folds)
        for start in range(0, len(folds), size):
            yield folds[start : start + size]


def _at_once(device: torch.device) -> int:
    """How many parts may train in turn; a CPU gains nothing."""
    return PARTS_AT_ONCE if device.type == "cuda" else 1


def _train_in_turn(parts: Sequence[Part], at_once: int) -> None:
    """An epoch of some parts in turn, each on a stream: few folds leave a GPU partly idle.

    A stack of them all would round its products otherwise; so each has the bytes of one alone.
    """
    alone = min(at_once, len(parts)) == 1
    waiting, training = deque(parts), deque()
    while waiting or training:
        if waiting and (not training or (len(training) < at_once and _has_room(len(training)))):
            stream = nullcontext() if alone else torch.cuda.stream(torch.cuda.Stream())
            training.appendleft((waiting.popleft().epochs(), stream))
        epochs, stream = training.popleft()
        with stream:
            going_on = next(epochs, None) is not None
        if going_on:
            training.append((epochs, stream))
        else:
            _free_memory(parts[0].problem.data.device)


def _has_room(count: int) -> bool:
    """Whether the GPU has memory for one more part like those that train.

    A new one keeps its features on the GPU only if they take less than half of what is free.
    """
    return torch.cuda.mem_get_info()[0] > 3 * torch.cuda.memory_reserved() / count


def _free_memory(device: torch.device) -> None:
    """Return what finished folds have held: they and their captured graphs name each other."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def values_to_try(method: type[Method], params: dict[str, Any]) -> dict[str, list]:
    """The values that are searched, type-checked like any other hyperparameter."""
    where = f"method {params['method']!r}, search"

    def typed(key: str, value: Any) -> Any:
        values = {**params["hyperparameters"], key: value}
        return getattr(method.Hyperparameters.of(values, where), key)

    return {
        key: [typed(key, value) for value in values]
        for key, values in params.get("search", {}).items()
    }


def combinations(values: dict[str, list]) -> list[dict[str, Any]]:
    """Every choice of one value per hyperparameter; one empty choice if there is none."""
    return [dict(zip(values, choice)) for choice in itertools.product(*values.values())]


def search(
    problems: Sequence[Problem],
    values: dict[str, list],
    checkpoints: Callable[[Problem], Checkpoints],
) -> list[tuple[list[FoldResult], list[dict[str, Any]]]]:
    """Fit every fold with every choice of ``values``; each keeps what its validation likes best.

    Ties go to the lower log-loss, then to the earlier choice. Only validation subjects decide, fold
    by fold. With the results of a problem come all choices and the mean over folds of their best
    validation AUCs.
    """
    best: list[list[FoldResult]] = [[] for _ in problems]
    tries: list[list[dict[str, Any]]] = [[] for _ in problems]
    for chosen in combinations(values):
        here = [problem.with_hyperparameters(chosen) for problem in problems]
        for place, results in enumerate(train_problems(here, [checkpoints(one) for one in here])):
            results = [replace(result, chosen=chosen) for result in results]
            mean = fmean(result.validation_auc for result in results)
            tries[place].append({"chosen": chosen, "validation_auc": mean})
            best[place] = [
                new if old is None or improves(*new.validated, *old.validated) else old
                for old, new in itertools.zip_longest(best[place], results)
            ]
    return list(zip(best, tries))
