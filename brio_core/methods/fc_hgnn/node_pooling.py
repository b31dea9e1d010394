"""From all nodes of a graph to some of them, and to soft clusters of them."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.methods.fc_hgnn.chebyshev import DenseChebyshev


class NodeScore(nn.Module):
    """``tanh(X w_own + A X w_heard + b)``, the score of SAGPooling (Lee et al., 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, 1, bias=False)
        self.heard = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        """Scores (..., P) of nodes (..., P, d)."""
        # Projected first, so that one column and not d of them meets the graph.
        heard = adjacency @ (hidden @ self.heard.weight.T)
        return torch.tanh(self.own(hidden) + heard + self.heard.bias).squeeze(-1)


class LocalGlobalPooling(nn.Module):
    """FC-HGNN's two channels: nodes that score high, each joined by the clusters it belongs to.

    ``H_kept * s + S_kept (S' H)`` with S a softmax of a Chebyshev convolution.
    """

    def __init__(self, width: int, kept: int, clusters: int) -> None:
        super().__init__()
        self.kept = kept
        self.score = NodeScore(width)
        self.assign = DenseChebyshev(width, clusters)

    def forward(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        """Nodes (B, P, d) to the kept ones (B, n, d), in their order."""
        score = self.score(hidden, adjacency)
        assignment = self.assign(hidden, adjacency).softmax(-1)
        coarse = assignment.mT @ hidden
        pooled = hidden * score[..., None] + assignment @ coarse
        return take_nodes(pooled, *highest(score.detach(), self.kept))


def highest(score: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The ``count`` highest of scores (..., P), in ascending order of nodes; ties to the first.

    Returns
    -------
    index (..., count) of these nodes, and of every node its place (..., P) among them; a node that
    is left out has the place ``count``.
    """
    order = score.sort(dim=-1, descending=True, stable=True).indices
    left_out = order.sort(-1).indices >= count
    index = left_out.byte().sort(dim=-1, stable=True).indices[..., :count]
    return index, torch.where(left_out, count, (~left_out).cumsum(-1) - 1)


def take_nodes(values: Tensor, index: Tensor, place: Tensor) -> Tensor:
    """Rows ``index`` of (..., P, d), where ``place`` is the way back (see :func:`highest`)."""
    return _Take.apply(values, index, place)


def _rows(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(-2, index[..., None].expand(*index.shape, values.shape[-1]))


class _Take(torch.autograd.Function):
    """Its derivative is a read as well, so nothing is added by atomics."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values, index, place):
        return _rows(values, index)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx, grad):
        (place,) = ctx.saved_tensors
        return _rows(functional.pad(grad, (0, 0, 0, 1)), place), None, None
