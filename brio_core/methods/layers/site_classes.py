"""Statistics of contributions within every site and class, for full scans and re-estimates."""

from typing import NamedTuple

import torch
from torch import Tensor


class CellStatistics(NamedTuple):
    """E sites, 2 classes, J factors; leading batch dimensions of the input come first."""

    mean: Tensor
    """mu (E, 2, J)."""
    variance: Tensor
    """V_sub (E, 2, J)."""
    site_contrast: Tensor
    """Delta_e (E, J)."""
    variation: Tensor
    """D_re (E, 2, J)."""
    scale: Tensor
    """T (E, 2, J)."""


def cell_statistics(
    contributions: Tensor, site: Tensor, label: Tensor, n_sites: int | None = None
) -> CellStatistics:
    """Means, variances, contrasts, re-estimation variation and the scale that calibrates it.

    Parameters
    ----------
    contributions : (..., N, K + 1, J)
        Position 0 is the full scan.
    site, label : (..., N)
        Sites counted from 0 and classes 0, 1; a negative site marks padding.
    n_sites : int, optional
        E; read from ``site`` if not given, which waits for the device.
    """
    n_sites = int(site.max()) + 1 if n_sites is None else n_sites
    full_scan, reestimated = contributions[..., 0, :], contributions[..., 1:, :]

    # Sums over one-hot membership: deterministic, and no matrix product that TF32 would round.
    cell = torch.arange(2 * n_sites, device=site.device)
    member = (site * 2 + label)[..., None] == cell
    member = member.to(contributions.dtype)[..., None]
    count = member.sum(-3).clamp_min(1)

    def cell_mean(values: Tensor) -> Tensor:
        return ((member * values[..., None, :]).sum(-3) / count).unflatten(-2, (n_sites, 2))

    # Eq. factor_task_statistics
    mean = cell_mean(full_scan)
    own_mean = (member * mean.flatten(-3, -2)[..., None, :, :]).sum(-2)
    variance = cell_mean((full_scan - own_mean).square())
    site_contrast = mean[..., 1, :] - mean[..., 0, :]
    # Eq. reestimation_variation, task_calibration_scale
    changes = (reestimated - full_scan[..., None, :]).square().sum(-2)
    variation = cell_mean(changes / max(1, reestimated.shape[-2]))
    scale = variance + site_contrast.square()[..., None, :] / 4
    return CellStatistics(mean, variance, site_contrast, variation, scale)
