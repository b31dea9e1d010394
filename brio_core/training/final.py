"""One model of all sites of a cohort, for sites that are not in it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brio_core.cohorts.cohort import Cohort, read_participants
from brio_core.cohorts.splits import all_sites
from brio_core.connectivity.block_length import fold_block_length, round_half_up
from brio_core.methods import registry
from brio_core.system.devices import make_deterministic
from brio_core.system.errors import BrioError
from brio_core.training.bundle import refuse_bundle
from brio_core.training.checkpoints import Checkpoints, fingerprint
from brio_core.training.data import TrainingData, folds_of
from brio_core.training.problem import Problem, Trial
from brio_core.training.results import FoldResult, decided, fold_decision
from brio_core.training.trainer import train


@dataclass(frozen=True)
class Wanted:
    """What is trained: ``params`` as a run has them, on the sites of a cohort but ``without``.

    ``metas`` and ``left_out`` are of the leave-one-site-out runs of the same variant: meta.json of
    every seed, and logits and labels of the subjects that each fold of one seed has left out. They
    choose where no inner choice does.
    """

    cohort_dir: Path
    variant: str
    params: dict[str, Any]
    seed: int
    metas: Sequence[dict]
    left_out: tuple[np.ndarray, np.ndarray]
    block_length: dict[str, Any]
    without: tuple[str, ...] = ()
    code: str = ""


def train_final(
    wanted: Wanted, device: torch.device, memory_mb: int | None, folder: Path, seconds: float
) -> tuple[Problem, FoldResult]:
    """Train on all sites, the one fold of the problem; unfinished work is kept in ``folder``."""
    method = registry.find(wanted.params["method"])
    chosen, epoch = chosen_by_folds(wanted.metas)
    values = {**wanted.params["hyperparameters"], **chosen}
    hyperparameters = method.Hyperparameters.of(values, f"method {method.name!r}")
    make_deterministic(device, values.get("precision", "float32"))
    data = _data(wanted, device, memory_mb)
    (fold,) = data.folds
    refuse_bundle(method(hyperparameters, data.n_rois, data.n_sites(fold)))
    trial = Trial(method, hyperparameters, wanted.variant, wanted.seed)
    if not trial.trains_on_sources:
        trial = replace(trial, stop=epoch)
    problem = Problem(data, trial)
    inputs = {"series": data.cohort.series.provenance.get("source_sha256", "")}
    checkpoints = Checkpoints(folder, fingerprint(problem, inputs, wanted.code), seconds)
    (result,) = train(problem, checkpoints)
    if not all(torch.isfinite(one).all() for one in result.state.values()):
        checkpoints.remove()
        raise BrioError(
            f"variant {wanted.variant!r}: training on all sites diverged; lower the learning rate"
        )
    checkpoints.remove()
    return problem, result


def chosen_by_folds(metas: Sequence[dict]) -> tuple[dict[str, Any], int]:
    """The hyperparameters that most folds chose, and the median epoch that these folds chose.

    Of a path of penalties it is the median point.
    """
    folds = [fold for meta in metas for fold in meta["folds"]]
    keys = [json.dumps(fold.get("chosen", {}), sort_keys=True) for fold in folds]
    most = Counter(keys).most_common(1)[0][0]
    epochs = [fold["selected_epoch"] for fold, key in zip(folds, keys) if key == most]
    return json.loads(most), round_half_up(float(np.median(epochs)))


def _data(wanted: Wanted, device: torch.device, memory_mb: int | None) -> TrainingData:
    """The cohort with one fold, in which all sites train."""
    cohort = Cohort.load(wanted.cohort_dir)
    table = read_participants(wanted.cohort_dir / "participants.tsv")
    split = all_sites(table, cohort.name, wanted.without)
    folds = folds_of(
        split, lambda fold: fold_block_length(fold, split, cohort.series, **wanted.block_length)
    )
    return TrainingData(cohort, split, folds, device, memory_mb=memory_mb)


def final_decision(wanted: Wanted, problem: Problem, result: FoldResult) -> dict[str, float]:
    """Threshold and calibration by subjects whose site did not fit what predicts them."""
    if result.source_logits is None:
        found = decided(*wanted.left_out)
    else:
        found = fold_decision(problem.data, result, problem.data.folds[0], np.zeros(0))
    return {"threshold": found["threshold"], **found["recalibration"]}
