"""A trained run on scans that it has never seen: the full-scan series and nothing else."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch

from brio_core.cohorts.cohort import padded_scans
from brio_core.cohorts.stores import Series
from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.methods.linear.sites import ELSEWHERE
from brio_core.system.errors import BrioError
from brio_core.training.results import Models, predict_rows

# Scans that are in memory at a time.
SCANS_AT_ONCE = 256


def scan_inputs(
    series: Series, rows: np.ndarray, needs: Sequence[str], path: Path | str
) -> dict[str, torch.Tensor]:
    """Inputs of a method from series alone."""
    made = {}
    if "fc" in needs:
        scans = (torch.as_tensor(series.scan(row)).double() for row in rows)
        made["fc"] = torch.stack([fisher_z_connectivity(scan).float() for scan in scans])
    if "bold" in needs:
        made["bold"] = torch.from_numpy(padded_scans(series)[rows])
    if "frames" in needs:
        made["frames"] = torch.as_tensor(series.frames[rows])
    if "row" in needs:
        made["row"] = torch.full((len(rows),), -1)
    if "site_number" in needs:
        made["site_number"] = torch.full((len(rows),), ELSEWHERE)
    missing = [need for need in needs if need not in made]
    if missing:
        raise BrioError(
            f"this method needs {missing[0]}, which {path} does not hold; it cannot predict from "
            "series alone"
        )
    return made


def predict(models: Models, series: Series, path: Path | str = "the series file") -> np.ndarray:
    """Logits (folds, subjects) of every fold's model."""
    if len(series.rois) != models.n_rois:
        raise BrioError(
            f"{path} has {len(series.rois)} ROIs, but the models were trained with "
            f"{models.n_rois}; use the same atlas and inclusion.drop_regions"
        )
    series.require_frames(models.method.min_frames, models.method.name)
    modules = [models.module(fold) for fold in range(len(models.names))]
    needs = models.method.needed(models.hyperparameters)

    def inputs() -> Iterator[dict[str, torch.Tensor]]:
        for start in range(0, len(series), SCANS_AT_ONCE):
            rows = np.arange(start, min(start + SCANS_AT_ONCE, len(series)))
            yield scan_inputs(series, rows, needs, path)

    if getattr(modules[0], "meets_sites", False):
        # All scans of the file are taken for one site. Features are the same in all folds.
        scans = [modules[0].features(some) for some in inputs()]
        for module in modules:
            module.meet(ELSEWHERE, scans)
    parts = []
    for some in inputs():
        every = np.arange(len(next(iter(some.values()))))
        parts.append(np.stack([predict_rows(module, some, every) for module in modules]))
    return np.concatenate(parts, axis=1)
