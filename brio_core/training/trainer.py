"""Fit all folds of a trial, as many at once as the machine allows, and search hyperparameters."""

import gc
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
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


def train(
    problem: Problem, checkpoints: Checkpoints, group_size: int | None = None
) -> list[FoldResult]:
    """Fit every fold; results come in the order of the split file."""
    if problem.trial.fits_paths:
        return fit_paths(problem, checkpoints)
    parts = list(groups(problem, group_size))
    results: dict[str, FoldResult] = {}
    if problem.data.device.type == "cuda" and len(parts) > 1:
        try:
            _train_in_turn(problem, parts, checkpoints, results)
        except torch.cuda.OutOfMemoryError:
            print("out of GPU memory: one group of folds after the other", file=sys.stderr)
        _free_memory(problem.data.device)
    for group in parts:
        if group[0].name not in results:
            _train_group(problem, group, checkpoints, results)
            _free_memory(problem.data.device)
    return [results[fold.name] for fold in problem.data.folds]


def groups(problem: Problem, group_size: int | None = None) -> Iterator[list[Fold]]:
    """Folds that train together: those of equal shapes, ``group_size`` at most."""
    by_shape: dict[tuple[int, int], list[Fold]] = {}
    for fold in problem.data.folds:
        by_shape.setdefault(problem.stack_key(fold), []).append(fold)
    for folds in by_shape.values():
        size = group_size or len(folds)
        for start in range(0, len(folds), size):
            yield folds[start : start + size]


def _train_in_turn(
    problem: Problem,
    parts: list[list[Fold]],
    checkpoints: Checkpoints,
    results: dict[str, FoldResult],
) -> None:
    """An epoch of every group in turn, each on a stream: small groups leave a GPU mostly idle."""
    # Groups read tables that were made before, on streams of their own.
    torch.cuda.synchronize()
    waiting = [
        (torch.cuda.Stream(), _epochs(problem, part, checkpoints, results)) for part in parts
    ]
    while waiting:
        for stream, epochs in waiting.copy():
            with torch.cuda.stream(stream):
                if next(epochs, None) is None:
                    waiting.remove((stream, epochs))


def _train_group(
    problem: Problem,
    group: list[Fold],
    checkpoints: Checkpoints,
    results: dict[str, FoldResult],
) -> None:
    try:
        for _ in _epochs(problem, group, checkpoints, results):
            pass
        return
    except torch.cuda.OutOfMemoryError:
        if len(group) == 1:
            raise BrioError(
                f"fold {group[0].name!r} alone does not fit into the memory of "
                f"{torch.cuda.get_device_name()}; use a larger GPU or smaller hyperparameters"
            ) from None
    # Outside the handler, so that the failed attempt's tensors are free.
    _free_memory(problem.data.device)
    half = (len(group) + 1) // 2
    print(f"out of GPU memory: {half} folds at a time instead of {len(group)}", file=sys.stderr)
    for part in (group[:half], group[half:]):
        _train_group(problem, part, checkpoints, results)


def _free_memory(device: torch.device) -> None:
    """Return what finished folds have held: they and their captured graphs name each other."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _epochs(
    problem: Problem,
    group: list[Fold],
    checkpoints: Checkpoints,
    results: dict[str, FoldResult],
) -> Iterator[int]:
    """Train a group of folds, an epoch at a time, and put what they come to into ``results``."""
    names, device = [fold.name for fold in group], problem.data.device
    left = checkpoints.load(names, device) or {}
    if "results" in left:
        results.update({result["name"]: FoldResult(**result) for result in left["results"]})
        return
    fit = GradientFit(problem, group, problem.data.memory_budget)
    if left:
        fit.restore(left)
        print(f"continuing after epoch {fit.epoch}", file=sys.stderr)
    title = f"{problem.trial.variant} seed {problem.trial.seed}, {len(group)} folds"
    if device.type == "cuda":
        # What was made here may be read by other groups.
        torch.cuda.synchronize()
    yield from fit.epochs(lambda fit: checkpoints.save(names, fit.snapshot()), title)
    found = [replace(result, together=len(group)) for result in fit.results()]
    # Other groups or hyperparameters may follow, so results are kept. They are a quarter the size
    # of a snapshot.
    checkpoints.save(names, {"results": [vars(result) for result in found]}, always=True)
    if device.type == "cuda":
        torch.cuda.synchronize()
    results.update({result.name: result for result in found})


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
    problem: Problem,
    values: dict[str, list],
    checkpoints: Callable[[Problem], Checkpoints],
) -> tuple[list[FoldResult], list[dict[str, Any]]]:
    """Fit every fold with every choice of ``values``; each keeps what its validation likes best.

    Ties go to the lower log-loss, then to the earlier choice. Only validation subjects decide, fold
    by fold. With the results come all choices and the mean over folds of their best validation
    AUCs.
    """
    best: list[FoldResult] = []
    tries = []
    for chosen in combinations(values):
        here = problem.with_hyperparameters(chosen)
        results = train(here, checkpoints(here))
        results = [replace(result, chosen=chosen) for result in results]
        mean = fmean(result.validation_auc for result in results)
        tries.append({"chosen": chosen, "validation_auc": mean})
        best = [
            new if old is None or improves(*new.validated, *old.validated) else old
            for old, new in itertools.zip_longest(best, results)
        ]
    return best, tries
