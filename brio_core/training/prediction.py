"""A trained run on scans that it has never seen: the full-scan series and nothing else."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from brio_core.cohorts.cohort import padded_scans
from brio_core.cohorts.stores import Series
from brio_core.connectivity.fisher_z import fisher_z_connectivity
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
    parts = []
    for start in range(0, len(series), SCANS_AT_ONCE):
        rows = np.arange(start, min(start + SCANS_AT_ONCE, len(series)))
        inputs = scan_inputs(series, rows, models.method.needs, path)
        every = np.arange(len(rows))
        parts.append(np.stack([predict_rows(module, inputs, every) for module in modules]))
    return np.concatenate(parts, axis=1)
