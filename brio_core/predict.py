"""A trained cell on scans that it has never seen: the full-scan series and nothing else."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from brio_core.cohort import Series
from brio_core.connectivity import fisher_z_connectivity, standardise
from brio_core.errors import BrioError
from brio_core.results import Models, predict_rows


def scan_inputs(series: Series, needs: Sequence[str], path: Path | str) -> dict[str, torch.Tensor]:
    """Inputs of a method from series alone."""
    scans = [torch.as_tensor(series.scan(index)).double() for index in range(len(series))]
    made = {}
    if "fc" in needs:
        made["fc"] = torch.stack([fisher_z_connectivity(scan).float() for scan in scans])
    if "bold" in needs:
        padded = torch.nn.utils.rnn.pad_sequence([standardise(scan) for scan in scans], True)
        made["bold"] = padded.float()
    if "frames" in needs:
        made["frames"] = torch.as_tensor(series.frames)
    if "row" in needs:
        made["row"] = torch.full((len(series),), -1)
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
            f"{models.n_rois}; use the same atlas"
        )
    series.require_frames(models.method.min_frames, models.method.name)
    inputs = scan_inputs(series, models.method.needs, path)
    rows = np.arange(len(series))
    return np.stack(
        [predict_rows(models.module(fold), inputs, rows) for fold in range(len(models.names))]
    )
