"""The edges of small graphs as lists of equal length, and the way back to dense matrices.

Per-edge work touches real edges only: at a density of 0.20 less than a third of all pairs. Both
directions of an edge stand E places apart: place e is i -> j with i < j, place E + e is j -> i.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import neighbours_per_roi, subject_graph


class EdgeLists(NamedTuple):
    """Lists of the edges of every graph of a batch.

    ``pairs`` (B, 2E): flat index of each directed edge in (P, P), 0 in places left empty.
    ``slots`` (B, P * P): the undirected place of each pair of nodes, E where there is no edge.
    ``order`` (B, 2E): places sorted by sender; those of node i are from ``starts`` (B, P + 1) [i]
    to [i + 1].
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
    def n_rois(self) -> int:
        return self.starts.shape[-1] - 1

    @property
    def n_places(self) -> int:
        """E, the places for undirected edges."""
        return self.pairs.shape[-1] // 2

    @property
    def present(self) -> Tensor:
        """Which of the E undirected places hold an edge, ones and zeros (B, E)."""
        # Flat index 0 is on the diagonal, where no edge is.
        return (self.pairs[..., : self.n_places] > 0).to(torch.float32)

    @property
    def mask(self) -> Tensor:
        """The graph as ones and zeros, (B, P, P)."""
        return self._square(self.slots < self.n_places).to(torch.float32)

    def collect(self, dense: Tensor) -> Tensor:
        """Values of all edges, (..., B, P, P) to (..., B, 2, E); zero in empty places."""
        return _Collect.apply(dense.flatten(-2), self.pairs, self.slots).unflatten(-1, (2, -1))

    def spread(self, values: Tensor, diagonal: float = 0.0) -> Tensor:
        """Undirected values (..., B, E) as symmetric matrices (..., B, P, P), zero elsewhere.

        All nodes have ``diagonal`` where they meet themselves.
        """
        if kernels.usable(values, "edge_lists"):
            from brio_core.kernels.edge_lists import Spread

            lists = (self.pairs, self.slots)
            return Spread.apply(values, *lists, None, self.n_rois, 0, diagonal)
        spread = self._square(_Spread.apply(values, self.pairs, self.slots))
        if diagonal:
            spread = spread + diagonal * torch.eye(
                self.n_rois, dtype=values.dtype, device=values.device
            )
        return spread

    def _square(self, flat: Tensor) -> Tensor:
        return flat.unflatten(-1, (self.n_rois, self.n_rois))


def list_edges(mask: Tensor, density: float) -> EdgeLists:
    """Lists of symmetric graphs (B, P, P) that :func:`graphs.symmetric_top` has made."""
    n_rois = mask.shape[-1]
    nowhere = n_rois * n_rois
    # Each of P rows selects m edges, and no pair counts twice.
    n_places = min(n_rois * neighbours_per_roi(n_rois, density), n_rois * (n_rois - 1) // 2)
    upper = mask.triu(1).flatten(-2)
    index = torch.arange(nowhere, device=mask.device)
    first = torch.where(upper, index, nowhere).sort(-1).values[..., :n_places]
    first = torch.where(first < nowhere, first, 0)
    second = first % n_rois * n_rois + first // n_rois
    pairs = torch.cat([first, second], -1)
    place = torch.where(upper, upper.cumsum(-1) - 1, n_places).view_as(mask)
    slots = torch.minimum(place, place.mT).flatten(-2)
    order = torch.where(pairs > 0, pairs, nowhere).argsort(-1)
    starts = functional.pad(mask.sum(-1).cumsum(-1), (1, 0))
    return EdgeLists(pairs, slots.int(), order.int(), starts.int())


def listed_features(fc: Tensor, density: float) -> dict[str, Tensor]:
    """FC rows as node features, and lists of the edges of every subject's graph."""
    return {"nodes": fc, **list_edges(subject_graph(fc, density), density)._asdict()}


def _gather(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(-1, index.long().expand(*values.shape[:-1], index.shape[-1]))


def _with_zero(values: Tensor) -> Tensor:
    """The values with a zero behind them, which stands for all that is not listed."""
    return functional.pad(values, (0, 1))


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
        _, slots = ctx.saved_tensors
        above, below = (_gather(_with_zero(half), slots) for half in grad.chunk(2, -1))
        n_rois = round(slots.shape[-1] ** 0.5)
        square = torch.ones(n_rois, n_rois, dtype=torch.bool, device=grad.device)
        return torch.where(square.triu().flatten(), above, below), None, None


class _Spread(torch.autograd.Function):
    """Writes every listed value to its two pairs, by reading each pair's place in the list."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values, pairs, slots):
        return _gather(_with_zero(values), slots)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[1:])

    @staticmethod
    def backward(ctx, grad):
        pairs, slots = ctx.saved_tensors
        there, back = _Collect.apply(grad, pairs, slots).chunk(2, -1)
        return there + back, None, None
