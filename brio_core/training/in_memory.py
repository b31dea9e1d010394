"""A run without files: a cohort in memory, its folds, and what training makes of them."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.splits import make_split
from brio_core.connectivity.block_length import fold_block_length
from brio_core.system.devices import choose_device, make_deterministic
from brio_core.system.errors import BrioError
from brio_core.system.rows import Rows
from brio_core.system.seeds import numpy_generator
from brio_core.training.data import Fold, TrainingData, folds_of
from brio_core.training.problem import Problem, Trial
from brio_core.training.results import FoldResult
from brio_core.training.run import judged
from brio_core.training.trainer import train

# Parts that stand for sites where none are named.
PARTS = 5
ALL = "all"


class NoCheckpoints:
    """Nothing is kept of a fit that ended early."""

    def load(self, names: list[str], device: torch.device) -> None:
        """Nothing."""

    def save(self, names: list[str], content: dict, always: bool = False) -> None:
        """Nothing."""


@contextmanager
def exact_arithmetic(wanted: str, trial: Trial) -> Iterator[torch.device]:
    """The device; there, same input gives same numbers. What the caller had set comes back."""
    # cuBLAS is deterministic only with a fixed workspace.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    device = choose_device(wanted, allow_cpu=True)
    exact = torch.get_deterministic_debug_mode()
    products = torch.get_float32_matmul_precision()
    filled = torch.utils.deterministic.fill_uninitialized_memory
    one_dnn = torch.backends.mkldnn.enabled
    make_deterministic(device, getattr(trial.hyperparameters, "precision", "float32"))
    try:
        yield device
    finally:
        torch.set_deterministic_debug_mode(exact)
        torch.set_float32_matmul_precision(products)
        torch.utils.deterministic.fill_uninitialized_memory = filled
        torch.backends.mkldnn.enabled = one_dnn


def fit_folds(
    problem: Problem,
) -> tuple[list[FoldResult], list[dict[str, np.ndarray]], list[dict[str, Any]]]:
    """Train all folds of a problem: results, logits of each part, and decisions."""
    results = train(problem, NoCheckpoints())
    return results, *judged(problem, results)


def whole_problem(
    cohort: Cohort, label: np.ndarray, trial: Trial, device: torch.device, dealt: bool
) -> Problem:
    """One fold without test subjects, in which the first two sites of the ring validate."""
    least = 2 if trial.trains_on_sources else 3 if trial.fits_paths else 4
    if dealt:
        cohort = replace(cohort, site=_dealt(label, least))
    sites = np.unique(cohort.site)
    parts = {str(one): np.flatnonzero(cohort.site == one) for one in sites}
    if len(parts) < least:
        raise BrioError(
            f"{trial.method.name} needs {least} or more sites to choose and train on, but there "
            f"are {len(parts)}: {', '.join(parts)}"
        )
    for name, rows in parts.items():
        if len(np.unique(label[rows])) < 2:
            raise BrioError(f"site {name!r} has one class only; leave it out")
    ring = numpy_generator("site-ring", 0).permutation(sites)
    validation = [parts[str(one)] for one in ring[:2]]
    held_back = np.sort(np.concatenate(validation))
    everyone = np.arange(len(label))
    training = np.setdiff1d(everyone, held_back)
    split = {"cohort": cohort.name, "site": cohort.site.tolist(), "label": label.tolist()}
    length = _block_length({"name": ALL, "train": training}, split, cohort)
    nobody = np.zeros(0, np.int64)
    fold = Fold(ALL, training, nobody, held_back, tuple(validation), length, everyone)
    return Problem(TrainingData(cohort, split, [fold], device), trial)


def _dealt(label: np.ndarray, least: int) -> np.ndarray:
    """Parts with equal shares of the classes, as many as the smaller class allows."""
    fewest = int(np.bincount(label).min())
    if fewest < least:
        raise BrioError(
            f"a class has {fewest} subjects, and {least} or more are needed to choose and train "
            "on; name the sites, or give more subjects"
        )
    part = np.empty(len(label), int)
    for side in (0, 1):
        members = numpy_generator("parts", side).permutation(np.flatnonzero(label == side))
        part[members] = np.arange(len(members)) % min(PARTS, fewest)
    return np.array([f"part {number + 1}" for number in part])


def loso_split(cohort: Cohort, label: np.ndarray, groups: np.ndarray) -> dict:
    """Folds of leave-one-site-out, those of the workflow's first ring."""
    about = {"subject": cohort.subjects, "site": cohort.site, "label": label, "group": groups}
    return make_split(pd.DataFrame(about), cohort.name, "loso", 0)


def loso_problem(
    cohort: Cohort, label: np.ndarray, groups: np.ndarray, trial: Trial, device: torch.device
) -> Problem:
    """All folds of leave-one-site-out."""
    split = loso_split(cohort, label, groups)
    folds = folds_of(split, lambda fold: _block_length(fold, split, cohort))
    return Problem(TrainingData(cohort, split, folds, device), trial)


def _block_length(fold: dict, split: dict, cohort: Cohort) -> float:
    """That of the workflow's default; where there are no series, nothing asks for it."""
    if isinstance(cohort.series.bold, Rows):
        return math.nan
    return fold_block_length(fold, split, cohort.series)
