"""The two propositions, read off a trained model instead of proved."""

from typing import NamedTuple

import torch
from torch import Tensor

from brio_core.methods.brio.qualification import Qualification


class ContrastStability(NamedTuple):
    """Proposition 1 for every source site and factor, all (E, J)."""

    contrast: Tensor
    """Delta_e of the full scans."""
    reestimated: Tensor
    """Delta_e of the re-estimates."""
    bound: Tensor
    """What their distance cannot exceed, Eq. (class_contrast_stability)."""
    condition: Tensor
    """Whether support is high enough in both classes to keep the sign."""


def contrast_stability(
    contributions: Tensor,
    site: Tensor,
    label: Tensor,
    qualification: Qualification,
    stabiliser: float = 1e-8,
) -> ContrastStability:
    """Class contrasts before and after re-estimation, and what the support promises about them.

    Parameters
    ----------
    contributions : (N, K + 1, J)
        Factor contributions; position 0 is the full scan.
    site, label : (N,)
        Sites counted from 0, each with both classes.
    qualification : Qualification
        Of the same contributions, with the same ``stabiliser`` and nothing left out.
    """
    n_sites = len(qualification.site_contrast)
    again = contributions[:, 1:].mean(1)
    means = [
        torch.stack([again[(site == one) & (label == side)].mean(0) for one in range(n_sites)])
        for side in (0, 1)
    ]
    support, scale = qualification.support, qualification.scale + stabiliser
    contrast = qualification.site_contrast
    separation = contrast.square()[:, None] / (4 * (qualification.variance + stabiliser))
    needed = (1 + separation) / (1 + 2 * separation)
    return ContrastStability(
        contrast,
        means[1] - means[0],
        (scale * (1 / support - 1)).sqrt().sum(1),
        (support > needed).all(1),
    )


class VariationalForm(NamedTuple):
    """Proposition 2 for every source-site pair and class, all (pairs, 2)."""

    penalty: Tensor
    """-log g, the least support penalty that any factor weights can reach."""
    relevance_penalty: Tensor
    """The support penalty of weighting by relevance alone, which bounds it from above."""


def variational_form(qualification: Qualification) -> VariationalForm:
    """How much reweighting by support saves, Eq. (pairwise_qualification_variational_solution)."""
    pair, relevance = qualification.pair_support, qualification.relevance
    return VariationalForm(-(relevance * pair).sum(-1).log(), -(relevance * pair.log()).sum(-1))
