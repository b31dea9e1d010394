"""Which edges of learnt graphs tell the classes apart at a site, and how far sites agree."""

import torch
from torch import Tensor


def class_difference(graphs: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Difference of class means in (0, 1), (S, P, P), and whether a site has both classes, (S,).

    Graphs are (S, n, P, P), labels (S, n). Magnitudes are standardised within each column.
    """
    positive = label.to(graphs.dtype)
    negative = 1 - positive
    counts = torch.stack([positive.sum(-1), negative.sum(-1)], -1)
    means = positive / counts[:, :1].clamp_min(1) - negative / counts[:, 1:].clamp_min(1)
    # A sum, not a matrix product: graphs differ by less than such a product may round off.
    difference = (means[..., None, None] * graphs).sum(1).abs()
    centred = difference - difference.mean(-2, keepdim=True)
    # The root of zero has no finite slope.
    spread = difference.var(-2, keepdim=True).clamp_min(1e-24).sqrt()
    return (centred / (spread + 1e-6)).sigmoid(), (counts > 0).all(-1)


def sparsity(difference: Tensor) -> Tensor:
    """Entropy of the rows' geometric means, (S,)."""
    level = (difference + 1e-10).log().mean(-1)
    return -(level.exp() * level).sum(-1)


def disagreement(difference: Tensor) -> Tensor:
    """One minus the soft Dice overlap of every pair of sites, (S, S).

    It is 0 on the diagonal only where differences are 0 or 1.
    """
    mass = difference.sum((-2, -1))
    # Many short products keep a GPU busy, one long product does not.
    rows = difference.transpose(0, 1)
    overlap = (rows @ rows.mT).sum(0)
    return 1 - 2 * overlap / (mass[:, None] + mass + 1e-8)
