"""From the files of a cohort to the files of a trained run."""

import platform
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from brio_core import __version__
from brio_core.cohorts.checksums import input_checksums
from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.splits import read_split
from brio_core.methods import registry
from brio_core.methods.interface import Method
from brio_core.system.devices import device_name
from brio_core.system.files import read_json, write_json
from brio_core.training.problem import Problem, read_folds
from brio_core.training.results import (
    FoldResult,
    fold_logits,
    write_history,
    write_models,
    write_predictions,
)
from brio_core.training.trainer import (
    Checkpoints,
    choose_device,
    fingerprint,
    make_deterministic,
    search,
)


def run_cell(
    cohort_dir: Path,
    split_path: Path,
    block_length_path: Path,
    variant: str,
    params: dict[str, Any],
    seed: int,
    out_dir: Path,
    device: str = "auto",
    allow_cpu: bool = True,
    group_size: int | None = None,
    checkpoint_seconds: float = 60.0,
    code: str = "",
    compress_models: bool = False,
    memory_mb: int | None = None,
) -> None:
    """Train every fold and write predictions.csv, history.csv, models.pt and meta.json."""
    started, begun = datetime.now(UTC), time.perf_counter()
    method = registry.find(params["method"])
    hyperparameters = method.Hyperparameters.of(
        params["hyperparameters"], f"method {params['method']!r}"
    )
    chosen = choose_device(device, allow_cpu)
    make_deterministic(chosen, params["hyperparameters"].get("precision", "float32"))
    cohort = Cohort.load(cohort_dir)
    split = read_split(split_path)
    block_length = read_json(block_length_path, "split_checksum", "folds")
    folds = read_folds(cohort, split, block_length)
    limit = None if memory_mb is None else memory_mb * 10**6
    problem = Problem(
        cohort, split, folds, method, hyperparameters, variant, seed, chosen, memory_limit=limit
    )

    def checkpoints(problem: Problem) -> Checkpoints:
        mark = fingerprint(problem, split, code)
        return Checkpoints(out_dir / ".unfinished", mark, checkpoint_seconds)

    values = _values_to_try(method, params)
    training_begun = time.perf_counter()
    results, tries = search(problem, values, checkpoints, group_size)
    if chosen.type == "cuda":
        torch.cuda.synchronize()
    training_seconds = time.perf_counter() - training_begun
    logits = [fold_logits(problem, result, fold) for result, fold in zip(results, folds)]

    write_predictions(out_dir / "predictions.csv", problem, logits)
    write_history(out_dir / "history.csv", results)
    write_models(out_dir / "models.pt", problem, results, compress_models)
    meta = {
        "cohort": split["cohort"],
        "protocol": split["protocol"],
        "variant": variant,
        "method": params["method"],
        "label": params["label"],
        "group": params["group"],
        "seed": seed,
        "hyperparameters": params["hyperparameters"],
        "search": params.get("search", {}),
        "split_checksum": split["checksum"],
        "inputs": input_checksums(cohort_dir, block_length_path),
        "code": code,
        "versions": _versions(),
        "device": device_name(chosen),
        "threads": torch.get_num_threads(),
        "group_size": group_size or len(folds),
        "parameters": _count_parameters(problem),
        "tries": [asdict(one) for one in tries],
        "folds": _fold_records(problem, results, training_seconds, len(tries)),
        "seconds": round(time.perf_counter() - begun, 3),
        "training_seconds": round(training_seconds, 3),
        "peak_memory_bytes": _peak_memory(chosen),
        "started": started.isoformat(timespec="seconds"),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(out_dir / "meta.json", meta)
    checkpoints(problem).remove()


def _values_to_try(method: type[Method], params: dict[str, Any]) -> dict[str, list]:
    """The values that every fold's validation subjects choose from, type-checked."""
    where = f"method {params['method']!r}, search"

    def typed(key: str, value: Any) -> Any:
        return getattr(
            method.Hyperparameters.of({**params["hyperparameters"], key: value}, where), key
        )

    return {
        key: [typed(key, value) for value in values]
        for key, values in params.get("search", {}).items()
    }


def _fold_records(
    problem: Problem, results: list[FoldResult], training_seconds: float, tries: int
) -> list[dict[str, Any]]:
    # Folds train together, so a fold's share of the time is the time per epoch and fold. The
    # lengths of tries that were not kept are not known; they count like those that were.
    epochs = tries * sum(result.epochs for result in results)
    return [
        {
            "name": result.name,
            "selected_epoch": result.selected_epoch,
            "validation_auc": result.validation_auc,
            "epochs": result.epochs,
            # Methods may raise it; what is fitted along a path has none.
            "first_epoch": getattr(
                problem.with_hyperparameters(result.chosen).hyperparameters, "first_epoch", None
            ),
            "seconds_per_epoch": round(training_seconds / epochs, 6),
            "chosen": result.chosen,
        }
        for result in results
    ]


def _count_parameters(problem: Problem) -> int:
    module = problem.method(
        problem.hyperparameters, problem.cohort.fc.shape[-1], problem.n_sites(problem.folds[0])
    )
    return sum(parameter.numel() for parameter in module.parameters())


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated()
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _versions() -> dict[str, str]:
    return {
        "brio": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }
