"""Graphs learnt from series, and which of their edges tell the classes apart at a site."""

import torch
from torch import Tensor, nn


class RegionLinear(nn.Linear):
    """A narrow linear layer of regions (..., P, d) whose gradient is summed scan by scan first.

    One product over the regions of all scans would leave most of a GPU idle.
    """

    def forward(self, hidden: Tensor) -> Tensor:
        out = hidden @ self.weight.T.expand(*hidden.shape[:-2], -1, -1)
        return out if self.bias is None else out + self.bias


class Constructor(nn.Module):
    """Self-attention of tokens (..., P, d); the learnt graph is M = A A^T of its output A.

    Scores are scaled by the full width. Without biases: one of the keys would learn nothing.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = RegionLinear(width, width, bias=False)
        self.sent = RegionLinear(width, width, bias=False)
        self.value = RegionLinear(width, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        projected = [layer(tokens) for layer in (self.query, self.sent, self.value)]
        scale = tokens.shape[-1] ** -0.5
        query, sent, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in projected
        )
        attention = (query * scale @ sent.mT).softmax(-1)
        return (attention @ value).transpose(-2, -3).flatten(-2)


class Propagation(nn.Linear):
    """A linear layer of what regions (..., P, d) hear over the graph M = A A^T, A (..., P, k).

    ``released``: a region hears itself, times its row sum of M. ``mean``: ``D^-1 M X``; where M is
    uniform, all regions hear the same. ``mean+self``: both that and itself. D holds the rows'
    absolute sums: entries of M may be negative, so plain sums could vanish.
    """

    kinds = ("released", "mean", "mean+self")

    def __init__(self, before: int, after: int, kind: str, bias: bool = True) -> None:
        super().__init__(before, after, bias)
        self.kind = kind

    def forward(self, hidden: Tensor, factor: Tensor) -> Tensor:
        heard = 0.0
        if self.kind != "released":
            # The factor has few columns, so all products are narrow, and so is what D divides.
            sums = (factor @ factor.mT).abs().sum(-1, keepdim=True)
            heard = (factor / (sums + 1e-6)) @ ((factor.mT @ hidden) @ self.weight.T)
        if self.kind != "mean":
            own = hidden @ self.weight.T
            sums = factor @ factor.sum(-2, keepdim=True).mT
            heard = heard + (own * sums if self.kind == "released" else own)
        return heard if self.bias is None else heard + self.bias


def variation_within(graphs: Tensor) -> Tensor:
    """Deviation of the entries of a graph (..., P, P) over their mean size, a mean over graphs."""
    entries = graphs.flatten(-2)
    return (entries.std(-1) / entries.abs().mean(-1)).mean()


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
