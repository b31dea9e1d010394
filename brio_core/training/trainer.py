"""Train one run: all folds of a cohort, protocol, variant and seed, in one process."""

import gc
import hashlib
import itertools
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from brio_core.methods.interface import PathMethod
from brio_core.system import devices
from brio_core.system.errors import BrioError
from brio_core.training.gradient import GradientFit
from brio_core.training.penalty_path import fit_path, fit_paths
from brio_core.training.problem import Fold, Problem
from brio_core.training.results import FoldResult, write_tensors


def choose_device(wanted: str, allow_cpu: bool) -> torch.device:
    """``cuda`` where there is one; the CPU only if it was asked for or allowed."""
    if wanted == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        devices.use_free_gpu()
        return torch.device("cuda")
    if wanted == "auto" and allow_cpu:
        return torch.device("cpu")
    raise BrioError(
        "no CUDA device was found; set 'device: cpu' or 'allow_cpu: true' in the configuration "
        "to train on the CPU"
    )


def make_deterministic(device: torch.device, precision: str) -> None:
    """Same input, same bytes: deterministic kernels; TF32 only if the hyperparameters say so."""
    torch.use_deterministic_algorithms(True)
    # No result depends on memory that was never written; filling it costs a tenth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = False
        torch.cuda.reset_peak_memory_stats()


class Checkpoints:
    """Unfinished work of a run, kept beside its results and removed when they are written."""

    def __init__(self, folder: Path, fingerprint: str, seconds: float) -> None:
        self.folder = folder
        self._fingerprint = fingerprint
        self._seconds = seconds
        self._last = time.monotonic()

    def _path(self, names: list[str]) -> Path:
        words = "\n".join([self._fingerprint, *names])
        digest = hashlib.sha256(words.encode()).hexdigest()[:16]
        return self.folder / f"{digest}.pt"

    def save(self, names: list[str], content: dict, always: bool = False) -> None:
        """Write what a group of folds has reached, if enough time has passed since the last."""
        now = time.monotonic()
        if not always and now - self._last < self._seconds:
            return
        self._last = now
        write_tensors(self._path(names), {"fingerprint": self._fingerprint, **content})

    def load(self, names: list[str], device: torch.device) -> dict | None:
        """What an earlier run of the very same run has left for these folds."""
        try:
            content = torch.load(self._path(names), map_location=device, weights_only=True)
        except Exception:
            # Absent, truncated or foreign: training anew is always right.
            return None
        return content if content.get("fingerprint") == self._fingerprint else None

    def remove(self) -> None:
        """Delete the folder of unfinished work."""
        shutil.rmtree(self.folder, ignore_errors=True)


def fingerprint(problem: Problem, split: dict, code: str) -> str:
    """Two runs may continue each other only if all of this is equal."""
    parts = {
        "split": split["checksum"],
        "method": problem.method.name,
        "hyperparameters": asdict(problem.hyperparameters),
        "variant": problem.variant,
        "seed": problem.seed,
        "device": problem.device.type,
        "torch": torch.__version__,
        "code": code,
        "fc": problem.cohort.checksum,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Try:
    """Hyperparameters that were tried for all folds, and the mean of their best validation AUCs."""

    chosen: dict[str, Any]
    validation_auc: float


def combinations(values: dict[str, list]) -> list[dict[str, Any]]:
    """Every choice of one value per setting; one empty choice if there is nothing to choose."""
    return [dict(zip(values, choice)) for choice in itertools.product(*values.values())]


def search(
    problem: Problem,
    values: dict[str, list],
    checkpoints: Callable[[Problem], Checkpoints],
    group_size: int | None,
) -> tuple[list[FoldResult], list[Try]]:
    """Fit every fold with every choice of ``values``; each keeps what its validation likes best.

    Ties go to the earlier choice. Only validation subjects decide, fold by fold.
    """
    best: list[FoldResult] = []
    tries = []
    for chosen in combinations(values):
        here = problem.with_hyperparameters(chosen)
        results = train(here, checkpoints(here), group_size)
        results = [replace(result, chosen=chosen) for result in results]
        tries.append(Try(chosen, fmean(result.validation_auc for result in results)))
        best = [
            new if old is None or new.validation_auc > old.validation_auc else old
            for old, new in itertools.zip_longest(best, results)
        ]
    return best, tries


def train(problem: Problem, checkpoints: Checkpoints, group_size: int | None) -> list[FoldResult]:
    """Fit every fold; results come in the order of the split file."""
    if issubclass(problem.method, PathMethod):
        return fit_paths(problem, lambda fold: _fit_path(problem, fold, checkpoints))
    results: dict[str, FoldResult] = {}
    for group in groups(problem, group_size):
        for result in _train_group(problem, group, checkpoints):
            results[result.name] = result
        _free_memory(problem.device)
    return [results[fold.name] for fold in problem.folds]


def _fit_path(problem: Problem, fold: Fold, checkpoints: Checkpoints) -> FoldResult:
    done = checkpoints.load([fold.name], problem.device)
    if done is None:
        result = fit_path(problem, fold)
        checkpoints.save([fold.name], {"result": vars(result)}, always=True)
        return result
    return FoldResult(**done["result"])


def groups(problem: Problem, group_size: int | None) -> Iterator[list[Fold]]:
    """Folds that train together: those of equal shapes, ``group_size`` at most."""
    by_shape: dict[tuple[int, int], list[Fold]] = {}
    for fold in problem.folds:
        by_shape.setdefault(problem.stack_key(fold), []).append(fold)
    for folds in by_shape.values():
        size = group_size or len(folds)
        for start in range(0, len(folds), size):
            yield folds[start : start + size]


def _train_group(problem: Problem, group: list[Fold], checkpoints: Checkpoints) -> list[FoldResult]:
    try:
        return _run_group(problem, group, checkpoints)
    except torch.cuda.OutOfMemoryError:
        if len(group) == 1:
            raise BrioError(
                f"fold {group[0].name!r} alone does not fit into the memory of "
                f"{torch.cuda.get_device_name()}; use a larger GPU or smaller hyperparameters"
            ) from None
    # Outside the handler, so that the failed attempt's tensors are free.
    _free_memory(problem.device)
    half = (len(group) + 1) // 2
    print(f"out of GPU memory: {half} folds at a time instead of {len(group)}", file=sys.stderr)
    return [
        result
        for part in (group[:half], group[half:])
        for result in _train_group(problem, part, checkpoints)
    ]


def _free_memory(device: torch.device) -> None:
    """Return what finished folds have held: they and their captured graphs name each other."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _run_group(problem: Problem, group: list[Fold], checkpoints: Checkpoints) -> list[FoldResult]:
    names = [fold.name for fold in group]
    left = checkpoints.load(names, problem.device) or {}
    if "results" in left:
        return [FoldResult(**result) for result in left["results"]]
    fit = GradientFit(problem, group, problem.memory_budget)
    if left:
        fit.restore(left)
        print(f"continuing after epoch {fit.epoch}", file=sys.stderr)
    title = f"{problem.variant} seed {problem.seed}, {len(group)} folds"
    fit.run(lambda fit: checkpoints.save(names, fit.snapshot()), title)
    results = fit.results()
    # A quarter of what going on would need: other groups and hyperparameters may be left to train.
    checkpoints.save(names, {"results": [vars(result) for result in results]}, always=True)
    return results
