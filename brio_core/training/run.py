"""From the files of a cohort to the files of a trained run."""

import gc
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brio_core.methods import registry
from brio_core.system.devices import choose_device, device_name, make_deterministic
from brio_core.system.errors import BrioError
from brio_core.system.files import digest, read_json, write_json
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
from brio_core.training.trainer import search, values_to_try


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
    """How a run is trained here; none of it changes a prediction."""

    device: str = "auto"
    allow_cpu: bool = True
    checkpoint_seconds: float = 60.0
    memory_mb: int | None = None
    compress_models: bool = False


# Work of an attempt that did not come to its end, and in it the results of runs that did.
UNFINISHED, FINISHED = ".unfinished", "finished"
# The files of a run in the order in which they are written: with meta.json it is finished.
RESULTS = ("predictions.csv", "history.csv", "models.pt", "meta.json")


def train_runs(runs: Sequence[Run], machine: Machine, out_dirs: Sequence[Path]) -> None:
    """Train runs of the same files one after the other; their scans are read once.

    Every folder gets predictions.csv, history.csv, models.pt and meta.json.

    Results wait in ``.unfinished`` until those of all runs are there. Whatever stops the others,
    the next attempt takes them from there.
    """
    begun = time.perf_counter()
    device = choose_device(machine.device, machine.allow_cpu)
    data = runs[0].files.read(device, machine.memory_mb)
    failed = []
    for run, out_dir in zip(runs, out_dirs):
        try:
            _train(run, machine, data, out_dir / UNFINISHED, begun)
        except BrioError as error:
            failed.append(str(error))
        begun = time.perf_counter()
        gc.collect()
        if device.type == "cuda":
            # What is free decides how much of the next run is kept on the device.
            torch.cuda.empty_cache()
    if failed:
        raise BrioError("\nerror: ".join(dict.fromkeys(failed)))
    for out_dir in out_dirs:
        for name in RESULTS:
            os.replace(out_dir / UNFINISHED / FINISHED / name, out_dir / name)
    for out_dir in out_dirs:
        shutil.rmtree(out_dir / UNFINISHED)


def _train(run: Run, machine: Machine, data: TrainingData, folder: Path, begun: float) -> None:
    """Train a run unless an earlier attempt has; ``folder`` holds its checkpoints and results."""
    started, device, out_dir = datetime.now(UTC), data.device, folder / FINISHED
    method = registry.find(run.params["method"])
    hyperparameters = method.Hyperparameters.of(
        run.params["hyperparameters"], f"method {run.params['method']!r}"
    )
    make_deterministic(device, run.params["hyperparameters"].get("precision", "float32"))
    problem = Problem(data, Trial(method, hyperparameters, run.variant, run.seed))
    inputs = run.files.checksums()
    asked = {
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
        "code": run.code,
        "versions": software(),
        "device": device_name(device),
    }
    if _finished(out_dir, asked):
        return
    notes = method.notes(data.cohort.series.rois, hyperparameters)
    for note in notes:
        print(f"{run.params['label']}: {note}", file=sys.stderr)

    kept: list[Checkpoints] = []

    def checkpoints(problem: Problem) -> Checkpoints:
        mark = fingerprint(problem, inputs, run.code)
        kept.append(Checkpoints(folder, mark, machine.checkpoint_seconds))
        return kept[-1]

    values = values_to_try(method, run.params)
    training_begun = time.perf_counter()
    results, tries = search(problem, values, checkpoints)
    if device.type == "cuda":
        torch.cuda.synchronize()
    earlier = sum(one.earlier for one in kept)
    training_seconds = time.perf_counter() - training_begun + earlier
    try:
        logits, decisions = judged(problem, results)
    except BrioError as error:
        # Nothing of it is written, not even what another attempt would go on from.
        checkpoints(problem).remove()
        raise BrioError(
            f"variant {run.variant!r}, seed {run.seed}: {error} with 'brio check'"
        ) from None
    write_predictions(out_dir / "predictions.csv", data, logits)
    write_history(out_dir / "history.csv", results)
    write_models(out_dir / "models.pt", problem, results, machine.compress_models)
    meta = asked | {
        "predictions": digest(out_dir / "predictions.csv"),
        "threads": torch.get_num_threads(),
        # Fewer than asked for where shapes differ or the memory was too small for all.
        "group_size": max(result.together for result in results),
        "parameters": problem.count_parameters(),
        "notes": notes,
        "tries": tries,
        "folds": [
            record | decision
            for record, decision in zip(
                fold_records(problem, results, training_seconds, tries), decisions
            )
        ],
        "seconds": round(time.perf_counter() - begun + earlier, 3),
        "training_seconds": round(training_seconds, 3),
        "peak_memory_bytes": _peak_memory(device),
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(out_dir / "meta.json", meta)


def _finished(out_dir: Path, asked: dict[str, Any]) -> bool:
    """Whether an earlier attempt has left results of the very same run."""
    if not all((out_dir / name).is_file() for name in RESULTS):
        return False
    try:
        meta = read_json(out_dir / "meta.json", *asked, "predictions")
    except BrioError:
        return False
    # As a file has it: without tuples, and with text for keys.
    asked = json.loads(json.dumps(asked)) | {"predictions": digest(out_dir / "predictions.csv")}
    return {key: meta[key] for key in asked} == asked


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
