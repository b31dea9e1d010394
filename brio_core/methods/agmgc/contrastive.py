"""Contrastive losses over a batch."""

import torch
from torch import Tensor


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """NT-Xent (Chen et al., 2020) of two unit-length views (B, d) of the same subjects.

    Each of the 2B views should find its partner among the 2B - 1 others.
    """
    views = torch.cat([one, other])
    similarity = views @ views.T / temperature
    oneself = torch.eye(len(views), dtype=torch.bool, device=views.device)
    others = similarity.masked_fill(oneself, float("-inf")).logsumexp(-1)
    # The pairing is symmetric: the same B numbers serve both directions.
    return others.mean() - similarity.diagonal(len(one)).mean()
