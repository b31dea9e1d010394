"""Task-calibrated re-estimation qualification: which factors may be aligned, and how strongly."""

from dataclasses import dataclass

import torch
from torch import Tensor

VARIANTS = ("none", "RS", "TR", "SM", "SF", "QG")


@dataclass(frozen=True)
class SiteClassStatistics:
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


@dataclass(frozen=True)
class Qualification(SiteClassStatistics):
    """Qualifications of one model snapshot beside the statistics behind them.

    ``pairs`` has no leading batch dimensions.
    """

    relevance: Tensor
    """pi_task (J,); zero everywhere if no factor separates the classes."""
    support: Tensor
    """q_re (E, 2, J)."""
    pairs: Tensor
    """Unordered site pairs (n_pairs, 2)."""
    pair_support: Tensor
    """q_pair (n_pairs, 2, J)."""
    weights: Tensor
    """Normalised qualifications (n_pairs, 2, J)."""
    strength: Tensor
    """g (n_pairs, 2)."""
    weight_matrix: Tensor
    """``weights`` for all ordered pairs (E, E, 2, J)."""
    strength_matrix: Tensor
    """``strength`` for all ordered pairs (E, E, 2), zero on the diagonal."""
    task_score: Tensor
    """R_task (J,)."""


def site_class_statistics(
    contributions: Tensor, site: Tensor, label: Tensor, n_sites: int | None = None
) -> SiteClassStatistics:
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
    group = torch.arange(2 * n_sites, device=site.device)
    member = (site * 2 + label)[..., None] == group
    member = member.to(contributions.dtype)[..., None]
    count = member.sum(-3).clamp_min(1)

    def site_class_mean(values: Tensor) -> Tensor:
        return ((member * values[..., None, :]).sum(-3) / count).unflatten(-2, (n_sites, 2))

    # Eq. factor_task_statistics
    mean = site_class_mean(full_scan)
    own_mean = (member * mean.flatten(-3, -2)[..., None, :, :]).sum(-2)
    variance = site_class_mean((full_scan - own_mean).square())
    site_contrast = mean[..., 1, :] - mean[..., 0, :]
    # Eq. reestimation_variation, task_calibration_scale
    changes = (reestimated - full_scan[..., None, :]).square().sum(-2)
    variation = site_class_mean(changes / max(1, reestimated.shape[-2]))
    scale = variance + site_contrast.square()[..., None, :] / 4
    return SiteClassStatistics(mean, variance, site_contrast, variation, scale)


def qualify(
    contributions: Tensor,
    site: Tensor,
    label: Tensor,
    classifier: Tensor,
    n_sites: int | None = None,
    without: str = "none",
    stabiliser: float = 1e-8,
) -> Qualification:
    """Qualify factors from the contributions of all training subjects.

    Parameters
    ----------
    contributions : (..., N, K + 1, J)
        Factor contributions before the 1/sqrt(J) scaling; position 0 is the full scan. Without
        re-estimates (K = 0) nothing varies and support is one.
    site, label : (..., N)
        Sites counted from 0 and classes 0, 1; a negative site marks padding.
    classifier : (..., J, d)
        Classifier blocks w_j.
    n_sites : int, optional
        E; read from ``site`` if not given, which waits for the device.
    without : {"none", "RS", "TR", "SM", "SF", "QG"}
        The component that an ablation leaves out.
    """
    if without not in VARIANTS:
        raise ValueError(f"without is one of {', '.join(VARIANTS)}, not {without!r}")
    found = site_class_statistics(contributions, site, label, n_sites)
    n_sites = found.mean.shape[-3]
    # Eq. source_balanced_statistics
    pooled_variance, contrast = found.variance.mean(-3), found.site_contrast.mean(-2)
    # Eq. task_relevance
    squared_norm = classifier.square().sum(-1)
    block_share = squared_norm / (squared_norm.sum(-1, keepdim=True) + stabiliser)
    task_score = block_share * contrast.square() / (pooled_variance.sum(-2) + stabiliser)
    total = task_score.sum(-1, keepdim=True)
    relevance = task_score / total.where(total > 0, 1)
    # Eq. reestimation_support
    support = (found.scale + stabiliser) / (found.scale + found.variation + stabiliser)

    # Where support is not used, no re-estimates need to be given.
    if without in ("RS", "QG"):
        support = torch.ones_like(support)
    if without in ("TR", "QG"):
        relevance = torch.full_like(relevance, 1 / relevance.shape[-1])

    # Eq. pairwise_factor_qualification, pairwise_qualification_profile
    pair_support = (support[..., :, None, :, :] * support[..., None, :, :, :]).sqrt()
    prior = relevance[..., None, None, None, :].expand_as(pair_support)
    qualification = prior * pair_support
    strength = qualification.sum(-1)
    weights = prior if without in ("SF", "QG") else qualification
    weight_sum = weights.sum(-1, keepdim=True)
    uniform = torch.full_like(weights, 1 / weights.shape[-1])
    weights = torch.where(weight_sum > 0, weights / weight_sum.where(weight_sum > 0, 1), uniform)
    if without in ("SM", "QG", "RS"):
        strength = (strength > 0).to(strength.dtype)
    # Rounding must not lift a sum of normalised terms above one.
    other_site = ~torch.eye(n_sites, dtype=torch.bool, device=site.device)[..., None]
    strength = strength.clamp_max(1) * other_site

    first, second = torch.triu_indices(n_sites, n_sites, 1, device=site.device)
    return Qualification(
        relevance=relevance,
        support=support,
        pairs=torch.stack([first, second], 1),
        pair_support=pair_support[..., first, second, :, :],
        weights=weights[..., first, second, :, :],
        strength=strength[..., first, second, :],
        weight_matrix=weights,
        strength_matrix=strength,
        task_score=task_score,
        **vars(found),
    )
