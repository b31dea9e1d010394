"""From the files of a cohort to the files of a trained run."""

import os
import shutil
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
from brio_core.training.checkpoints import Checkpoints, Clock, fingerprint
from brio_core.training.data import RunFiles
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
from brio_core.training.trainer import search, values_to_try


@dataclass(frozen=True)
class Runs:
    """What is trained: on which files, with what, under which seeds.

    ``params`` are the method, its hyperparameters, the values to search, and the variant's label
    and group in tables. ``folders`` get the results of each seed. ``code`` is the version of the
    code, which results keep.
    """

    files: RunFiles
    variant: str
    params: dict[str, Any]
    folders: dict[int, Path]
    code: str = ""


@dataclass(frozen=True)
class Machine:
    """How a run is trained here; none of it changes a prediction."""

    device: str = "auto"
    allow_cpu: bool = True
    checkpoint_seconds: float = 60.0
    memory_mb: int | None = None
    compress_models: bool = False


# Work of an attempt that did not come to its end.
UNFINISHED = ".unfinished"
# The files of a run in the order in which they are written: with meta.json it is finished.
RESULTS = ("predictions.csv", "history.csv", "models.pt", "meta.json")


def train_runs(runs: Runs, machine: Machine) -> None:
    """Train the runs of all seeds; their scans are read once.

    Every folder gets predictions.csv, history.csv, models.pt and meta.json when all runs have come
    to their end. Whatever stops one, the next attempt goes on from ``.unfinished``.
    """
    begun, started = time.perf_counter(), datetime.now(UTC)
    device = choose_device(machine.device, machine.allow_cpu)
    data, inputs = runs.files.read(device, machine.memory_mb), runs.files.checksums()
    params = runs.params
    method = registry.find(params["method"])
    hyperparameters = method.Hyperparameters.of(
        params["hyperparameters"], f"method {params['method']!r}"
    )
    make_deterministic(device, params["hyperparameters"].get("precision", "float32"))
    notes = method.notes(data.cohort.series.rois, hyperparameters)
    for note in notes:
        print(f"{params['label']}: {note}", file=sys.stderr)
    trials = [Trial(method, hyperparameters, runs.variant, seed) for seed in runs.folders]
    problems = [Problem(data, trial) for trial in trials]
    kept, clock = [], Clock()

    def unfinished(problem: Problem) -> Path:
        return runs.folders[problem.trial.seed] / UNFINISHED

    def checkpoints(problem: Problem) -> Checkpoints:
        mark = fingerprint(problem, inputs, runs.code)
        kept.append(Checkpoints(unfinished(problem), mark, machine.checkpoint_seconds, clock))
        return kept[-1]

    training_begun = time.perf_counter()
    found = search(problems, values_to_try(method, params), checkpoints)
    if device.type == "cuda":
        torch.cuda.synchronize()
    earlier = sum(one.earlier for one in kept)
    training_seconds = (time.perf_counter() - training_begun + earlier) / len(problems)
    predicted, failed = [], []
    for problem, (results, _) in zip(problems, found):
        try:
            predicted.append(judged(problem, results))
        except BrioError as error:
            # Nothing of it is written, not even what another attempt would go on from.
            checkpoints(problem).remove()
            seed = problem.trial.seed
            failed.append(f"variant {runs.variant!r}, seed {seed}: {error} with 'brio check'")
    if failed:
        raise BrioError("\nerror: ".join(failed))
    for problem, (results, _), (logits, _) in zip(problems, found, predicted):
        folder = unfinished(problem)
        write_predictions(folder / "predictions.csv", data, logits)
        write_history(folder / "history.csv", results)
        write_models(folder / "models.pt", problem, results, machine.compress_models)
    for problem, (results, tries), (_, decisions) in zip(problems, found, predicted):
        folds = fold_records(problem, results, training_seconds, tries)
        meta = {
            "cohort": data.split["cohort"],
            "protocol": data.split["protocol"],
            "variant": runs.variant,
            **{key: params[key] for key in ("method", "label", "group")},
            "seed": problem.trial.seed,
            "ring": data.split.get("ring", 0),
            "hyperparameters": params["hyperparameters"],
            "search": params.get("search", {}),
            "split_checksum": data.split["checksum"],
            "inputs": inputs,
            "code": runs.code,
            "versions": software(),
            "device": device_name(device),
            "predictions": digest(unfinished(problem) / "predictions.csv"),
            "threads": torch.get_num_threads(),
            # Fewer than asked for where shapes differ or the memory was too small for all.
            "group_size": max(result.together for result in results),
            "seeds_together": len(problems),
            "parameters": problem.count_parameters(),
            "notes": notes,
            "tries": tries,
            "folds": [record | decision for record, decision in zip(folds, decisions)],
            # Of what all runs took, each has its share.
            "seconds": round((time.perf_counter() - begun + earlier) / len(problems), 3),
            "training_seconds": round(training_seconds, 3),
            "peak_memory_bytes": _peak_memory(device),
            "started": started.isoformat(timespec="seconds"),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        write_json(unfinished(problem) / "meta.json", meta)
    for folder in runs.folders.values():
        for name in RESULTS:
            os.replace(folder / UNFINISHED / name, folder / name)
    for folder in runs.folders.values():
        shutil.rmtree(folder / UNFINISHED)


def judged(
    problem: Problem, results: list[FoldResult]
) -> tuple[list[dict[str, np.ndarray]], list[dict[str, Any]]]:
    """Logits of each part of all folds, and their decisions; all predictions must be finite."""
    data = problem.data
    logits = [fold_logits(problem, result, fold) for result, fold in zip(results, data.folds)]
    for fold, values in zip(data.folds, logits):
        for split, found in values.items():
            strange = getattr(fold, split)[~np.isfinite(found)]
            if len(strange):
                raise BrioError(
                    f"training diverged, and subject {data.cohort.subjects[strange[0]]} in fold "
                    f"{fold.name!r} has no finite prediction; lower the learning rate, and look "
                    "for absurd values"
                )
    decisions = [
        fold_decision(data, result, fold, found["validation"])
        for result, fold, found in zip(results, data.folds, logits)
    ]
    return logits, decisions


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
