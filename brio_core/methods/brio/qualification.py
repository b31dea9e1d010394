"""Which factors may be aligned and how strongly, and their alignment between sites.

Qualification is calibrated by the task and by re-estimation. The alignment that it guides compares
the distributions of factors of one class at two sites.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brio_core.methods.layers.transport import transport_cost

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


def pair_costs(factors: Tensor, weight_matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Cross and self costs (..., E, E, 2, n, n) of all ordered site pairs.

    Eq. qualified_pairwise_distance: sum_j w_j (1 - r_i . r_h). Entry (e, e') of the self costs
    holds site e's distances to itself under the weights of the pair (e, e').
    """
    n_sites, _, n_points = factors.shape[-5:-2]
    # (..., 2, J, E, n, d): classes and factors are batch, sites and subjects are rows.
    points = factors.movedim((-4, -2), (-5, -4))
    rows = points.flatten(-3, -2)
    cross = (1 - rows @ rows.mT).unflatten(-1, (n_sites, n_points))
    cross = cross.unflatten(-3, (n_sites, n_points))
    within = 1 - points @ points.mT
    # (..., 2, J, E, E)
    weights = weight_matrix.movedim((-2, -1), (-4, -3))
    cross = (weights[..., :, None, :, None] * cross).sum(-5).transpose(-3, -2)
    within = (weights[..., :, :, None, None] * within[..., :, None, :, :]).sum(-5)
    return cross.movedim(-5, -3), within.movedim(-5, -3)


def alignment_loss(
    factors: Tensor,
    weight_matrix: Tensor,
    strength_matrix: Tensor,
    epsilon: float = 0.1,
    iterations: int = 50,
) -> Tensor:
    """The alignment loss (Eq. qualification_guided_alignment) of one balanced batch.

    The sum over unordered pairs of g S_epsilon is half the sum over ordered pairs of
    g (OT(e, e') - OT(e, e)), because g and the weights are symmetric. Ordered pairs need no
    gathers, whose backward pass would add up in an undefined order on a GPU.

    Parameters
    ----------
    factors : (..., E, 2, n, J, d)
        Unit-norm full-scan factors, n subjects of every site and class.
    weight_matrix : (..., E, E, 2, J)
    strength_matrix : (..., E, E, 2)
        Zero on the diagonal.

    Returns
    -------
    (...)
    """
    n_sites = factors.shape[-5]
    cross, within = pair_costs(factors, weight_matrix)
    excess = transport_cost(cross, epsilon, iterations)
    excess = excess - transport_cost(within, epsilon, iterations, symmetric=True)
    return (strength_matrix * excess).sum((-3, -2, -1)) / (2 * n_sites * (n_sites - 1))
