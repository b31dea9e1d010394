"""Diagnostics of one trained cell, fold by fold, on its own training subjects."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brio_core.cohort import Cohort
from brio_core.diagnostics.predictive_variation import predictive_variation
from brio_core.diagnostics.site_discrepancy import site_discrepancy
from brio_core.errors import BrioError
from brio_core.evaluation import auc
from brio_core.files import read_json
from brio_core.methods.base import Method
from brio_core.problem import Fold, Problem, read_folds
from brio_core.resampling import round_half_up
from brio_core.results import predict_rows, read_models

# Diagnostics draw re-estimates that no training refresh has drawn.
REFRESH = 1_000_000
GRAPHS_AT_ONCE = 512


def diagnose_cell(
    cohort_dir: Path,
    split_path: Path,
    block_length_path: Path,
    run_dir: Path,
    reestimates: int,
    epsilon: float,
    device: torch.device,
) -> list[dict[str, object]]:
    """One record per fold: D_site, predictive variation, validation and test AUC."""
    cohort, split = Cohort.load(cohort_dir), read_json(split_path)
    folds = read_folds(cohort, split, read_json(block_length_path))
    meta, models = read_json(run_dir / "meta.json"), read_models(run_dir / "models.pt")
    if meta["split_checksum"] != split["checksum"]:
        raise BrioError(f"{run_dir} was trained on other folds than {split_path}; train it again")
    problem = Problem(
        cohort,
        split,
        folds,
        models.method,
        models.settings,
        meta["variant"],
        meta["seed"],
        device,
    )
    records = []
    for index, fold in enumerate(folds):
        module = problem.restored(fold, models.states[index])
        site = torch.as_tensor(np.unique(cohort.site[fold.train], return_inverse=True)[1])
        label = torch.as_tensor(problem.label[fold.train])
        discrepancy = site_discrepancy(_represent(module, problem, fold), site, label, epsilon)
        logits = reestimated_logits(module, problem, fold, reestimates)
        test = predict_rows(module, problem.inputs, fold.test)
        records.append(
            {
                "fold": fold.name,
                "site_discrepancy": float(discrepancy),
                "predictive_variation": float(predictive_variation(logits, site, label)),
                "test_auc": auc(problem.label[fold.test], test),
                "validation_auc": meta["folds"][index]["validation_auc"],
            }
        )
    return records


def _chunks(rows: np.ndarray, size: int, device: torch.device) -> Iterator[Tensor]:
    yield from torch.as_tensor(rows, device=device).split(size)


@torch.no_grad()
def _represent(module: Method, problem: Problem, fold: Fold) -> Tensor:
    parts = []
    for rows in _chunks(fold.train, GRAPHS_AT_ONCE, problem.device):
        chosen = {name: value[rows] for name, value in problem.inputs.items()}
        parts.append(module.represent(module.features(chosen)).cpu())
    return torch.cat(parts)


@torch.no_grad()
def reestimated_logits(module: Method, problem: Problem, fold: Fold, n_resamples: int) -> Tensor:
    """Logits (N, K + 1) of the training subjects: the full scan, then its re-estimates.

    A method that uses series gets the resampled series; what is not a scan stays as it is.
    """
    full = torch.as_tensor(predict_rows(module, problem.inputs, fold.train))
    length = torch.tensor(round_half_up(fold.block_length), device=problem.device)
    parts = []
    for rows in _chunks(fold.train, max(1, GRAPHS_AT_ONCE // n_resamples), problem.device):
        draw = (rows, length, REFRESH, n_resamples)
        inputs = {
            name: value[rows].repeat_interleave(n_resamples, 0)
            for name, value in problem.inputs.items()
            if name not in ("fc", "bold")
        }
        if "fc" in problem.inputs:
            inputs["fc"] = problem.scans.reestimate(*draw).flatten(0, 1)
        if "bold" in problem.inputs:
            inputs["bold"] = problem.scans.resample(*draw).flatten(0, 1)
        logits = module.logits(module.features(inputs))
        parts.append(logits.view(len(rows), n_resamples).double().cpu())
    return torch.cat([full[:, None], torch.cat(parts)], dim=1)
