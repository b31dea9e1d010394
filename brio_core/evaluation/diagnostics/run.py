"""All diagnostics of a trained run."""

import time
from pathlib import Path

import pandas as pd
import torch

from brio_core.cohorts.stores import Rois
from brio_core.evaluation.diagnostics.fold import Records, TrainedFold, diagnose_fold
from brio_core.evaluation.diagnostics.scans import Reestimates, SharedFeatures
from brio_core.evaluation.scores import auc
from brio_core.system.devices import device_name, make_deterministic
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json
from brio_core.training.data import RunFiles
from brio_core.training.problem import Problem, Trial
from brio_core.training.results import Models, read_models, write_records

# What diagnostics repeat of the meta.json of their run.
RUN = ("cohort", "protocol", "variant", "method", "label", "group", "seed", "hyperparameters")


def diagnose_run(
    files: RunFiles,
    run_dir: Path,
    options: dict,
    out_dir: Path,
    device: torch.device,
    code: str = "",
    memory_mb: int | None = None,
) -> None:
    """Write one CSV file per diagnostic, and meta.json: of which run and with what they were made.

    ``options`` are the ``diagnostics`` of the configuration. ``memory_mb`` is what the process may
    have; with more of it features are kept for the next fold.
    """
    begun = time.perf_counter()
    # Not as an earlier job of the same process has left it.
    make_deterministic(device, "float32")
    data, meta = files.read(device, memory_mb), read_json(run_dir / "meta.json")
    if meta["split_checksum"] != data.split["checksum"]:
        raise BrioError(f"{run_dir} was trained on other folds than {files.split}; train it again")
    models = read_models(run_dir / "models.pt")
    trial = Trial(models.method, models.hyperparameters, meta["variant"], meta["seed"])
    tested = stored_auc(run_dir / "predictions.csv")
    thresholds = [fold.get("threshold", 0.0) for fold in meta["folds"]]
    tables = _tables(Problem(data, trial), models, options, thresholds)
    for record, fold in zip(tables["folds"], meta["folds"], strict=True):
        record |= {"validation_auc": fold["validation_auc"], "test_auc": tested[fold["name"]]}
    for name, records in tables.items():
        if records:
            write_records(out_dir / f"{name}.csv", records)
    write_records(out_dir / "rois.csv", roi_records(data.cohort.series.rois))
    write_json(
        out_dir / "meta.json",
        {key: meta[key] for key in RUN}
        | {
            "diagnostics": options,
            "split_checksum": data.split["checksum"],
            "inputs": files.checksums(),
            "code": code,
            "device": device_name(device),
            "seconds": round(time.perf_counter() - begun, 3),
        },
    )


def _tables(
    problem: Problem, models: Models, options: dict, thresholds: list[float]
) -> dict[str, Records]:
    """Records of all folds, by table."""
    data, trial = problem.data, problem.trial
    # Every method and seed is asked about the same re-estimates.
    reestimates = Reestimates(data.scans(seed=0), options["reestimates"])
    shared: dict[str, SharedFeatures] = {}
    tables: dict[str, Records] = {}
    stored = zip(data.folds, models.states, models.chosen, thresholds, strict=True)
    for fold, state, chosen, threshold in stored:
        module = problem.restored(fold, state, chosen)
        kept = None
        if problem.with_hyperparameters(chosen).trial.shares_features:
            # By folds that have chosen the same hyperparameters.
            key = repr(sorted(chosen.items()))
            kept = shared.setdefault(key, SharedFeatures(data.memory_budget))
        trained = TrainedFold(module, problem, fold, reestimates, kept, threshold)
        found = diagnose_fold(trained, options)
        where = {"variant": trial.variant, "seed": trial.seed, "fold": fold.name}
        for name, records in found.items():
            tables.setdefault(name, []).extend(where | record for record in records)
    return tables


def stored_auc(path: Path) -> dict[str, float]:
    """Test AUC of every fold from stored predictions."""
    table = pd.read_csv(path, dtype={"fold": str}, keep_default_na=False)
    folds = table[table["split"] == "test"].groupby("fold", sort=False)
    return {fold: auc(rows["label"], rows["logit"]) for fold, rows in folds}


def roi_records(rois: Rois) -> Records:
    """The rows of rois.csv."""
    return [
        {"roi": index, "name": name, "x": x, "y": y, "z": z, "hemisphere": rois.hemispheres[index]}
        for index, (name, (x, y, z)) in enumerate(zip(rois.names, rois.centroids.tolist()))
    ]
