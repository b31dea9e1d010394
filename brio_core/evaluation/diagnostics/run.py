"""All diagnostics of a trained run."""

import csv
import time
from pathlib import Path

import numpy as np
import torch

from brio_core.cohorts.checksums import input_checksums
from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.splits import read_split
from brio_core.cohorts.stores import Rois
from brio_core.evaluation.diagnostics.fold import FoldData, Records, diagnose_fold
from brio_core.evaluation.diagnostics.reestimates import Reestimates
from brio_core.evaluation.diagnostics.shared_features import SharedFeatures
from brio_core.evaluation.scores import auc
from brio_core.methods.training_scans import Scans
from brio_core.system.devices import device_name
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json
from brio_core.system.residence import half_of_free_memory
from brio_core.training.problem import Problem, read_folds
from brio_core.training.results import Models, read_models, write_records
from brio_core.training.trainer import make_deterministic

# What diagnostics tell about their cell, in its own words.
RUN = ("cohort", "protocol", "variant", "method", "label", "group", "seed", "hyperparameters")


def diagnose_cell(
    cohort_dir: Path,
    split_path: Path,
    block_length_path: Path,
    run_dir: Path,
    hyperparameters: dict,
    device: torch.device,
    out_dir: Path,
    code: str = "",
    memory: int | None = None,
) -> None:
    """Write one CSV file per diagnostic, and meta.json: of which cell and with what they were made.

    ``memory`` is what the process may have, in bytes; with more of it features are kept for the
    next fold.
    """
    begun = time.perf_counter()
    # Not as an earlier job of the same process has left it.
    make_deterministic(device, "float32")
    cohort, split = Cohort.load(cohort_dir), read_split(split_path)
    meta = read_json(run_dir / "meta.json")
    if meta["split_checksum"] != split["checksum"]:
        raise BrioError(f"{run_dir} was trained on other folds than {split_path}; train it again")
    folds = read_folds(cohort, split, read_json(block_length_path, "split_checksum", "folds"))
    models = read_models(run_dir / "models.pt")
    problem = Problem(
        cohort,
        split,
        folds,
        models.method,
        models.hyperparameters,
        meta["variant"],
        meta["seed"],
        device,
    )
    # Every method and seed is asked about the same re-estimates.
    reestimates = Reestimates(Scans(cohort, device, seed=0), hyperparameters["reestimates"])
    tables = _tables(problem, stored_auc(run_dir / "predictions.csv"), meta, models, reestimates,
                     hyperparameters, memory)  # fmt: skip
    for name, records in tables.items():
        if records:
            write_records(out_dir / f"{name}.csv", records)
    write_records(out_dir / "rois.csv", roi_records(cohort.series.rois))
    write_json(
        out_dir / "meta.json",
        {key: meta[key] for key in RUN}
        | {
            "diagnostics": hyperparameters,
            "split_checksum": split["checksum"],
            "inputs": input_checksums(cohort_dir, block_length_path),
            "code": code,
            "device": device_name(device),
            "seconds": round(time.perf_counter() - begun, 3),
        },
    )


def _tables(
    problem: Problem,
    tested: dict[str, float],
    meta: dict,
    models: Models,
    reestimates: Reestimates,
    hyperparameters: dict,
    memory: int | None,
) -> dict[str, Records]:
    """Records of all folds, by table; ``tested`` is the test AUC of every fold."""
    shared: dict[str, SharedFeatures] = {}
    tables: dict[str, Records] = {}
    for index, fold in enumerate(problem.folds):
        chosen = models.chosen[index]
        module = problem.restored(fold, models.states[index], chosen)
        kept = None
        if models.method.features_are_shared:
            # By folds that have chosen the same hyperparameters.
            budget = half_of_free_memory(problem.device, memory)
            kept = shared.setdefault(repr(sorted(chosen.items())), SharedFeatures(budget))
        found = diagnose_fold(FoldData(module, problem, fold, reestimates, kept), hyperparameters)
        found["folds"][0] |= {
            "validation_auc": meta["folds"][index]["validation_auc"],
            "test_auc": tested[fold.name],
        }
        where = {"variant": meta["variant"], "seed": meta["seed"], "fold": fold.name}
        for name, records in found.items():
            tables.setdefault(name, []).extend(where | record for record in records)
    return tables


def stored_auc(path: Path) -> dict[str, float]:
    """Test AUC of every fold from stored predictions."""
    rows: dict[str, list[tuple[int, float]]] = {}
    with open(path, newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            if row["split"] == "test":
                rows.setdefault(row["fold"], []).append((int(row["label"]), float(row["logit"])))
    return {fold: auc(*np.array(pairs).T) for fold, pairs in rows.items()}


def roi_records(rois: Rois) -> Records:
    """The rows of rois.csv."""
    return [
        {"roi": index, "name": name, **dict(zip("xyz", map(float, centroid))), "hemisphere": side}
        for index, (name, centroid, side) in enumerate(
            zip(rois.names, rois.centroids, rois.hemispheres)
        )
    ]
