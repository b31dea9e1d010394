"""From the files of a cohort to the files of a trained run."""

import sys
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brio_core.methods import registry
from brio_core.system.devices import choose_device, device_name, make_deterministic
from brio_core.system.errors import BrioError
from brio_core.system.files import digest, write_json
from brio_core.training.checkpoints import Checkpoints, fingerprint
from brio_core.training.data import RunFiles, TrainingData
from brio_core.training.problem import Problem, Trial
from brio_core.training.results import (
    FoldResult,
    fold_decision,
    fold_logits,
    software,
    write_history,
    write_models,
    write_predictions,
)
from brio_core.training.search import search, values_to_try


@dataclass(frozen=True)
class Run:
    """What is trained: on which files, with what, under which seed.

    ``params`` are the method, its hyperparameters, the values to search, and the variant's label
    and group in tables. ``code`` is the version of the code, which results keep.
    """

    files: RunFiles
    variant: str
    params: dict[str, Any]
    seed: int
    code: str = ""


@dataclass(frozen=True)
class Machine:
    """How a run is trained here; none of it changes a prediction.

    ``group_size`` folds train together (default: all).
    """

    device: str = "auto"
    allow_cpu: bool = True
    group_size: int | None = None
    checkpoint_seconds: float = 60.0
    memory_mb: int | None = None
    compress_models: bool = False


def train_run(run: Run, machine: Machine, out_dir: Path) -> None:
    """Train every fold and write predictions.csv, history.csv, models.pt and meta.json."""
    started, begun = datetime.now(UTC), time.perf_counter()
    method = registry.find(run.params["method"])
    hyperparameters = method.Hyperparameters.of(
        run.params["hyperparameters"], f"method {run.params['method']!r}"
    )
    device = choose_device(machine.device, machine.allow_cpu)
    make_deterministic(device, run.params["hyperparameters"].get("precision", "float32"))
    data = run.files.read(device, machine.memory_mb)
    problem = Problem(data, Trial(method, hyperparameters, run.variant, run.seed))
    inputs = run.files.checksums()
    notes = method.notes(data.cohort.series.rois, hyperparameters)
    for note in notes:
        print(f"{run.params['label']}: {note}", file=sys.stderr)

    def checkpoints(problem: Problem) -> Checkpoints:
        mark = fingerprint(problem, inputs, run.code)
        return Checkpoints(out_dir / ".unfinished", mark, machine.checkpoint_seconds)

    values = values_to_try(method, run.params)
    training_begun = time.perf_counter()
    results, tries = search(problem, values, checkpoints, machine.group_size)
    if device.type == "cuda":
        torch.cuda.synchronize()
    training_seconds = time.perf_counter() - training_begun
    logits = [fold_logits(problem, result, fold) for result, fold in zip(results, data.folds)]
    strange = first_without_prediction(data, logits)
    if strange:
        # Nothing of it is written, not even what another attempt would go on from.
        checkpoints(problem).remove()
        raise BrioError(
            f"variant {run.variant!r}, seed {run.seed}: training diverged, and {strange} has no "
            "finite prediction; lower the learning rate, and look for absurd values with "
            "'brio check'"
        )

    decisions = [
        fold_decision(data, result, fold, found["validation"])
        for result, fold, found in zip(results, data.folds, logits)
    ]
    write_predictions(out_dir / "predictions.csv", data, logits)
    write_history(out_dir / "history.csv", results)
    write_models(out_dir / "models.pt", problem, results, machine.compress_models)
    meta = {
        "cohort": data.split["cohort"],
        "protocol": data.split["protocol"],
        "variant": run.variant,
        **{key: run.params[key] for key in ("method", "label", "group")},
        "seed": run.seed,
        "ring": data.split.get("ring", 0),
        "hyperparameters": run.params["hyperparameters"],
        "search": run.params.get("search", {}),
        "split_checksum": data.split["checksum"],
        "inputs": inputs,
        "predictions": digest(out_dir / "predictions.csv"),
        "code": run.code,
        "versions": software(),
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "group_size": machine.group_size or len(data.folds),
        "parameters": problem.count_parameters(),
        "notes": notes,
        "tries": tries,
        "folds": [
            record | decision
            for record, decision in zip(
                fold_records(problem, results, training_seconds, tries), decisions
            )
        ],
        "seconds": round(time.perf_counter() - begun, 3),
        "training_seconds": round(training_seconds, 3),
        "peak_memory_bytes": _peak_memory(device),
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(out_dir / "meta.json", meta)
    checkpoints(problem).remove()


def first_without_prediction(data: TrainingData, logits: list[dict[str, np.ndarray]]) -> str:
    """A subject whose prediction is not finite, and its fold; empty if there is none."""
    for fold, values in zip(data.folds, logits):
        for split, found in values.items():
            strange = getattr(fold, split)[~np.isfinite(found)]
            if len(strange):
                return f"subject {data.cohort.subjects[strange[0]]} in fold {fold.name!r}"
    return ""


def fold_records(
    problem: Problem,
    results: list[FoldResult],
    training_seconds: float,
    tries: list[dict[str, Any]],
) -> list[dict[str, Any]]:
    """What meta.json tells about every fold."""

    def first_epoch(chosen: dict[str, Any]) -> int | None:
        # Methods may raise it; what is fitted along a path has none.
        here = problem.with_hyperparameters(chosen)
        return getattr(here.trial.hyperparameters, "first_epoch", None)

    trained = problem.data.on_sources() if problem.trial.trains_on_sources else problem.data
    # Folds train together, so a fold's share of the time is the time per epoch and fold. The
    # lengths of tries that were not kept are not known; they count like those that were.
    epochs = len(tries) * sum(result.epochs for result in results)
    return [
        {
            "name": result.name,
            "training_subjects": len(fold.train),
            "training_sites": trained.n_sites(fold),
            "selected_epoch": result.selected_epoch,
            "validation_auc": result.validation_auc,
            "epochs": result.epochs,
            "first_epoch": first_epoch(result.chosen),
            "seconds_per_epoch": round(training_seconds / epochs, 6),
            "chosen": result.chosen,
        }
        for result, fold in zip(results, trained.folds)
    ]


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
