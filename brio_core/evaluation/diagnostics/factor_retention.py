"""Which factors carry the prediction to unseen sites? Keep the best ranked, drop the others."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from brio_core.methods.brio.qualification import Qualification

RANDOM = "random"


class Retention(NamedTuple):
    """Logits (N,) of a model that keeps ``kept`` of its factors."""

    ranking: str
    draw: int
    kept: int
    logits: Tensor


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
) -> list[Retention]:
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

    Returns
    -------
    list of Retention
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
    found = []
    for name, draw, order in orders:
        for kept in range(1, n_factors + 1):
            mask = torch.zeros(n_factors, dtype=torch.bool)
            mask[order[:kept]] = True
            mask = mask.repeat_interleave(block).to(representation.device)
            logits = classify(representation.where(mask, 0)).squeeze(-1)
            found.append(Retention(name, draw, kept, logits))
    return found
