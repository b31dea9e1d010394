"""What environments (here: sites) have in common within a batch.

``members`` (B, E) holds a one where a row belongs to a site. Rows of no site count nowhere, and
sites without rows are left out of every mean, so any sampler will do.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class SiteMoments(NamedTuple):
    """Mean (E, d) and covariance (E, d, d) of every site; ``usable`` (E,) if it has two rows."""

    means: Tensor
    covariances: Tensor
    usable: Tensor


def membership(site: Tensor, n_sites: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Which row (B,) belongs to which site, as ones and zeros (B, E)."""
    return (site[:, None] == torch.arange(n_sites, device=site.device)).to(dtype)


def site_means(values: Tensor, members: Tensor) -> Tensor:
    """Mean of (B,) or (B, d) at every site, (E,) or (E, d); zero at a site without rows."""
    # Sums, not a matrix product, which a GPU may round to ten bits.
    weights = members if values.ndim == 1 else members[..., None]
    counts = weights.sum(0).clamp_min(1)
    return (weights * values.unsqueeze(1)).sum(0) / counts


def mean_over(values: Tensor, usable: Tensor) -> Tensor:
    """Mean of ``values`` (E,) over usable sites; 0 if there is none."""
    usable = usable.to(values.dtype)
    return (values * usable).sum() / usable.sum().clamp_min(1)


def mean_site_risk(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """Binary cross-entropy averaged within sites and then over sites, whatever their sizes."""
    risk = functional.binary_cross_entropy_with_logits(
        logits, label.to(logits.dtype), reduction="none"
    )
    return mean_over(site_means(risk, members), members.sum(0) > 0)


def site_moments(representation: Tensor, members: Tensor) -> SiteMoments:
    """Means and unbiased covariances of a representation (B, d) at every site."""
    counts = members.sum(0)
    means = site_means(representation, members)
    centred = (representation - means[:, None]) * members.T[..., None]
    covariances = centred.mT @ centred / (counts - 1).clamp_min(1)[:, None, None]
    return SiteMoments(means, covariances, counts >= 2)


def mean_squared_distance(values: Tensor, usable: Tensor) -> Tensor:
    """Mean over pairs of usable sites of ``|v_e - v_e'|^2``, values (E, ...); 0 without a pair.

    Distances to the common mean give the same number as all pairs do:
    ``sum_{e<e'} |v_e - v_e'|^2 = E sum_e |v_e - mean|^2``.
    """
    values, usable = values.flatten(1), usable.to(values.dtype)
    count = usable.sum()
    centre = (usable[:, None] * values).sum(0) / count.clamp_min(1)
    spread = (usable[:, None] * (values - centre).square()).sum()
    return 2 * spread / (count - 1).clamp_min(1)


def coral_penalty(moments: SiteMoments, mean_term: bool) -> Tensor:
    """Deep CORAL's ``|C_e - C_e'|_F^2 / (4 d^2)``, averaged over pairs of sites.

    ``mean_term`` adds ``|m_e - m_e'|^2 / d``, as later implementations do and the paper does not.
    """
    width = moments.means.shape[-1]
    penalty = mean_squared_distance(moments.covariances, moments.usable) / (4 * width**2)
    if mean_term:
        penalty = penalty + mean_squared_distance(moments.means, moments.usable) / width
    return penalty


def dummy_gradients(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """``dR_e(w)/dw`` at w = 1 for ``R_e(w)``, the cross-entropy of ``w * logits`` at a site, (E,).

    In closed form ``mean_i (sigmoid(z_i) - y_i) z_i``, so no second backward pass is needed.
    """
    return site_means((logits.sigmoid() - label) * logits, members)


def irm_penalty(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """IRMv1: squared gradients of the dummy classifier, averaged over sites."""
    return mean_over(dummy_gradients(logits, label, members).square(), members.sum(0) > 0)


def irm_penalty_of_halves(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """The unbiased estimate of :func:`irm_penalty`: products of two halves; it may be negative.

    Halves take turns within every site and class, so that neither gets one class only. The
    order of subjects within a class must be random, which all samplers see to.
    """
    same = (members @ members.T > 0) & (label[:, None] == label)
    turn = same.tril(-1).sum(-1) % 2
    halves = [members * (turn == side)[:, None] for side in (0, 1)]
    first, second = (dummy_gradients(logits, label, half) for half in halves)
    usable = (halves[0].sum(0) > 0) & (halves[1].sum(0) > 0)
    return mean_over(first * second, usable)
