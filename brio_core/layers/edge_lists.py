"""The edges of small graphs as lists of equal length, and the way back to dense matrices.

Per-edge work touches real edges only: at a density of 0.20 less than a third of all pairs. Both
directions of an edge stand E places apart: place e is i -> j with i < j, place E + e is j -> i.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brio_core.graphs import neighbours_per_roi


class EdgeLists(NamedTuple):
    """``pairs`` (B, 2E): flat index of each directed edge in (P, P), 0 in places left empty.

    ``slots`` (B, P * P): the place of each pair of nodes in the list, 2E where there is no edge.
    ``order`` (B, 2E): places sorted by sender; node i's are from ``starts`` (B, P + 1) [i] to
    [i + 1].
    """

    pairs: Tensor
    slots: Tensor
    order: Tensor
    starts: Tensor

    @classmethod
    def of(cls, features: dict[str, Tensor]) -> "EdgeLists":
        """The lists among the features of a method, which keep their names."""
        return cls(*(features[name] for name in cls._fields))

    @property
    def present(self) -> Tensor:
        """Which of the E undirected places hold an edge, ones and zeros (B, E)."""
        # Flat index 0 is on the diagonal, where no edge is.
        return (self.pairs[..., : self.pairs.shape[-1] // 2] > 0).to(torch.float32)

    @property
    def mask(self) -> Tensor:
        """The graph as ones and zeros, (B, P, P)."""
        n_rois = round(self.slots.shape[-1] ** 0.5)
        return (self.slots < self.pairs.shape[-1]).unflatten(-1, (n_rois, n_rois)).float()

    def collect(self, dense: Tensor) -> Tensor:
        """Values of all edges, (..., B, P, P) to (..., B, 2, E); zero in empty places."""
        return _Collect.apply(dense.flatten(-2), self.pairs, self.slots).unflatten(-1, (2, -1))

    def spread(self, values: Tensor) -> Tensor:
        """Undirected values (..., B, E) as symmetric matrices (..., B, P, P), zero elsewhere."""
        n_rois = round(self.slots.shape[-1] ** 0.5)
        both = torch.cat([values, values], -1)
        return _Spread.apply(both, self.pairs, self.slots).unflatten(-1, (n_rois, n_rois))


def list_edges(mask: Tensor, density: float) -> EdgeLists:
    """Lists of symmetric graphs (B, P, P) that :func:`brio_core.graphs.symmetric_top` has made."""
    n_rois = mask.shape[-1]
    # Each of P rows selects m edges, and no pair counts twice.
    n_edges = min(n_rois * neighbours_per_roi(n_rois, density), n_rois * (n_rois - 1) // 2)
    upper = mask.triu(1).flatten(-2)
    index = torch.arange(n_rois * n_rois, device=mask.device)
    first = torch.where(upper, index, n_rois * n_rois).sort(-1).values[..., :n_edges]
    first = torch.where(first < n_rois * n_rois, first, 0)
    second = first % n_rois * n_rois + first // n_rois
    place = (upper.cumsum(-1) - 1).unflatten(-1, (n_rois, n_rois))
    upper = upper.view_as(place)
    slots = torch.where(upper, place, torch.where(upper.mT, place.mT + n_edges, 2 * n_edges))
    pairs = torch.cat([first, second], -1)
    order = torch.where(pairs > 0, pairs, n_rois * n_rois).argsort(-1)
    starts = functional.pad(mask.sum(-1).cumsum(-1), (1, 0))
    return EdgeLists(pairs, slots.flatten(-2), order.int(), starts.int())


def _gather(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(-1, index.expand(*values.shape[:-1], index.shape[-1]))


class _Collect(torch.autograd.Function):
    """Reads the listed pairs. Its derivative is a read as well, so nothing is added by atomics."""

    generate_vmap_rule = True

    @staticmethod
    def forward(dense, pairs, slots):
        return _gather(dense, pairs) * (pairs > 0)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx, grad):
        return _Spread.apply(grad, *ctx.saved_tensors), None, None


class _Spread(torch.autograd.Function):
    """Writes every listed value to its pair, by reading each pair's place in the list."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values, pairs, slots):
        return _gather(torch.cat([values, torch.zeros_like(values[..., :1])], -1), slots)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx, grad):
        return _Collect.apply(grad, *ctx.saved_tensors), None, None
