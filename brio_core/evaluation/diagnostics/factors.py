"""Qualified factors of a trained model: retention, the two propositions, the ROI profile.

The propositions are read off the model instead of proved.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from brio_core.methods.brio.qualification import Qualification

RANDOM = "random"


def factor_scores(qualification: Qualification) -> dict[str, Tensor]:
    """Scores (J,) that factors are ranked by, averaged over source-site pairs and classes."""
    pair = qualification.pair_support
    return {
        "qualification": (qualification.relevance * pair).mean((0, 1)),
        "relevance": qualification.relevance,
        "support": pair.mean((0, 1)),
    }


def factor_retention(
    representation: Tensor,
    classify: Callable[[Tensor], Tensor],
    scores: Mapping[str, Tensor],
    draws: int = 20,
    seed: int = 0,
) -> Iterator[tuple[str, int, int, Tensor]]:
    """Predictions of the original classifier when only the highest ranked factors are kept.

    Parameters
    ----------
    representation : (N, J d)
        Concatenated factors, as the classifier takes them.
    classify : callable
        The classifier; what is dropped is given to it as zeros, so that keeping all factors gives
        the original predictions to the last bit.
    scores : mapping of ranking to (J,)
        Higher scores are kept first, ties by the index of the factor.
    draws : int
        Random orders, called ``random``, which ``seed`` fixes.

    Yields
    ------
    ranking, draw, kept, logits (N,)
        For every ranking and draw, 1 to J kept factors.
    """
    n_factors = len(next(iter(scores.values())))
    orders = [(name, 0, score.argsort(descending=True, stable=True).cpu())
              for name, score in scores.items()]  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    orders += [
        (RANDOM, draw, torch.randperm(n_factors, generator=generator)) for draw in range(draws)
    ]
    block = representation.shape[-1] // n_factors
    for name, draw, order in orders:
        for kept in range(1, n_factors + 1):
            mask = torch.zeros(n_factors, dtype=torch.bool)
            mask[order[:kept]] = True
            mask = mask.repeat_interleave(block).to(representation.device)
            yield name, draw, kept, classify(representation.where(mask, 0)).squeeze(-1)


def contrast_stability(
    contributions: Tensor,
    site: Tensor,
    label: Tensor,
    qualification: Qualification,
    stabiliser: float = 1e-8,
) -> dict[str, Tensor]:
    """Class contrasts before and after re-estimation, and what the support promises about them.

    This is Proposition 1 for every source site and factor, (E, J) each: ``contrast`` and
    ``reestimated``, Delta_e of full scans and of re-estimates; ``bound``, what their distance
    cannot exceed, Eq. (class_contrast_stability); ``condition``, whether support is high enough in
    both classes to keep the sign.

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
    return {
        "contrast": contrast,
        "reestimated": means[1] - means[0],
        "bound": (scale * (1 / support - 1)).sqrt().sum(1),
        "condition": (support > needed).all(1),
    }


def variational_form(qualification: Qualification) -> dict[str, Tensor]:
    """How much reweighting by support saves, Eq. (pairwise_qualification_variational_solution).

    This is Proposition 2 for every source-site pair and class, (pairs, 2) each. ``penalty`` is
    -log g, the least support penalty that any factor weights can reach; ``relevance_penalty`` is
    that of weighting by relevance alone, which bounds it from above.
    """
    pair, relevance = qualification.pair_support, qualification.relevance
    return {
        "penalty": -(relevance * pair).sum(-1).log(),
        "relevance_penalty": -(relevance * pair.log()).sum(-1),
    }


def roi_profile(qualification: Qualification, assignment: Tensor) -> Tensor:
    """Qualification-weighted profile (P,) of one model, Eq. (app_qualification_roi_score).

    Parameters
    ----------
    qualification : Qualification
        Its normalised weights are averaged over source-site pairs and classes.
    assignment : (J, P)
        The anchored assignment; rows have mass 1/J, so the profile sums to one.
    """
    weights = qualification.weights.mean((0, 1))
    score = weights @ assignment.to(weights.dtype)
    return score / score.sum()
