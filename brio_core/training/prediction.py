"""A trained model on scans that it has never seen: their series and nothing else of a cohort."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.stores import Series
from brio_core.connectivity.block_length import round_half_up
from brio_core.connectivity.fisher_z import fisher_z_connectivity, standardise
from brio_core.connectivity.reestimation import subject_keys
from brio_core.methods.interface import Features, Method
from brio_core.methods.linear.sites import ELSEWHERE
from brio_core.methods.training_scans import Scans
from brio_core.system.threads import spread

# Scans that are worked on together, by one thread or by a GPU.
ON_CPU, ON_GPU = 4, 64
# Re-estimates that neither training nor diagnostics have drawn.
REFRESH = 2_000_000


class Answers(NamedTuple):
    """What a model says of some scans: Fisher-z connectivity (n, P, P), logits (n,), and again.

    ``again`` (n, K) are the logits of re-estimates.
    """

    fisher_z: np.ndarray
    logits: np.ndarray
    again: np.ndarray


def answers(
    module: Method,
    series: Series,
    reestimates: int = 0,
    block_length: float = 1.0,
    covariates: np.ndarray | None = None,
    device: torch.device | None = None,
) -> Iterator[Answers]:
    """Answers to all scans in their order, a bounded number at a time.

    A scan's numbers do not depend on the others. ``covariates`` are age, sex and mean framewise
    displacement (N, 3), unless given unknown.
    """
    device = device or torch.device("cpu")
    series.require_frames(module.min_frames, module.name)
    module = module.to(device)
    if covariates is None:
        covariates = np.full((len(series), 3), np.nan, np.float32)

    def answer(rows: np.ndarray) -> Answers:
        with torch.no_grad():  # which every thread has to be told
            return _answer(module, series, rows, covariates, reestimates, block_length, device)

    step = ON_CPU if device.type == "cpu" else ON_GPU
    parts = [np.arange(at, min(at + step, len(series))) for at in range(0, len(series), step)]
    # Files are read by the threads too, so few parts are on their way at a time.
    for at in range(0, len(parts), 16):
        yield from spread(answer, parts[at : at + 16], device)


def _answer(
    module: Method,
    series: Series,
    rows: np.ndarray,
    covariates: np.ndarray,
    count: int,
    block_length: float,
    device: torch.device,
) -> Answers:
    read = [torch.as_tensor(series.scan(row)).double() for row in rows]
    # As rule connect does it: in double precision, then stored in single.
    fisher_z = torch.stack([fisher_z_connectivity(scan) for scan in read]).float().to(device)
    frames = torch.as_tensor(series.frames[rows], device=device)
    needs = module.needed(module.hyperparameters)
    bold = torch.zeros(len(rows), int(frames.max()), len(series.rois))
    if count or "bold" in needs:
        for place, scan in enumerate(read):
            bold[place, : len(scan)] = standardise(scan)
    bold = bold.to(device)
    about = {
        "frames": frames,
        "covariates": torch.as_tensor(covariates[rows], device=device),
        "row": torch.full_like(frames, -1),
        "site_number": torch.full_like(frames, ELSEWHERE),
    }

    def logits(scans: Features, times: int, precision: torch.dtype) -> Tensor:
        known = {name: value.repeat_interleave(times, 0) for name, value in about.items()} | scans
        made = module.features({name: known[name] for name in needs}, precision)
        return module.logits(made).double().cpu()

    full = logits({"fc": fisher_z, "bold": bold}, 1, torch.float64)
    again = torch.zeros(len(rows), 0)
    if count:
        keys = subject_keys("new scans", [series.subjects[row] for row in rows], 0).to(device)
        scans = Scans(lambda: bold, frames, keys)
        draw = torch.arange(len(rows), device=device), torch.tensor(round_half_up(block_length))
        draw = (draw[0], draw[1].to(device), REFRESH, count)
        made = {}
        if "fc" in needs:
            made["fc"] = scans.reestimate(*draw).flatten(0, 1)
        if "bold" in needs:
            made["bold"] = scans.resample(*draw).flatten(0, 1)
        # They are a sample of what the scan could have been, so single precision will do.
        again = logits(made, count, torch.float32).unflatten(0, (-1, count))
    return Answers(fisher_z.cpu().numpy(), full.numpy(), again.numpy())
