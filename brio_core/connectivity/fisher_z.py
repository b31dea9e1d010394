"""Functional connectivity: joint frame cleaning, Pearson correlation, Fisher z."""

import numpy as np
import torch
from torch import Tensor

LARGEST_CORRELATION = 1 - 1e-7


def fisher_z(correlation: Tensor) -> Tensor:
    """Fisher z of correlations; the only place where they are clipped away from one."""
    return correlation.clamp(-LARGEST_CORRELATION, LARGEST_CORRELATION).atanh()


def standardise(series: Tensor) -> Tensor:
    """Centre and scale every ROI over the frames in which all ROIs are finite.

    Dropped frames and constant ROIs become zeros, so sums over frames ignore them.
    """
    valid = torch.isfinite(series).all(-1, keepdim=True)
    count = valid.sum(-2, keepdim=True).clamp_min(1)
    lowest = series.where(valid, torch.inf).amin(-2, keepdim=True)
    highest = series.where(valid, -torch.inf).amax(-2, keepdim=True)
    # A mean in floating point may miss the value of a constant series, so its spread decides.
    varying = valid & (highest > lowest)
    mean = series.where(varying, 0).sum(-2, keepdim=True) / count
    centred = (series - mean).where(varying, 0)
    # Squares of extreme units would leave the range of float32.
    peak = centred.abs().amax(-2, keepdim=True)
    centred = centred / peak.where(peak > 0, 1)
    scale = (centred.square().sum(-2, keepdim=True) / count).sqrt()
    return centred / scale.where(scale > 0, 1)


def without_diagonal(matrix: Tensor) -> Tensor:
    """The same matrices with zeros on the diagonal."""
    off_diagonal = ~torch.eye(matrix.shape[-1], dtype=torch.bool, device=matrix.device)
    return matrix * off_diagonal


def fisher_z_connectivity(series: Tensor | np.ndarray) -> Tensor | np.ndarray:
    """Fisher-z connectivity of ROI series (Eq. app_full_scan_fc).

    Parameters
    ----------
    series : (..., T, P) tensor or array
        Frames by ROIs. Frames with a non-finite value in any ROI are dropped for all ROIs.

    Returns
    -------
    (..., P, P) of the same kind
        Zero diagonal; a constant ROI has a row and a column of zeros.
    """
    if not isinstance(series, Tensor):
        return np.asarray(fisher_z_connectivity(torch.as_tensor(np.asarray(series))))
    if not series.is_floating_point():
        series = series.double()
    count = torch.isfinite(series).all(-1).sum(-1).clamp_min(1)[..., None, None]
    standardised = standardise(series)
    return without_diagonal(fisher_z(standardised.mT @ standardised / count))
