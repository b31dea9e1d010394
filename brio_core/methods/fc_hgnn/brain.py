"""Layers of FC-HGNN, and stage 1: each subject's own graph, by hemisphere, to one vector."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import inverse_root, propagate
from brio_core.system.randomness import dropout

LEFT, RIGHT, MIDLINE = range(3)
# Random streams that the encoder uses, counted from 0.
STREAMS = 4


class DenseChebyshev(nn.Linear):
    """``sum_k T_k(L) X W_k + b`` with ``L = -D^-1/2 A D^-1/2``.

    That is the normalised Laplacian scaled to [-1, 1] by its bound of 2. D has no self-loops, and
    a node without edges has zeros in L.
    """

    def __init__(self, before: int, after: int, terms: int = 3) -> None:
        super().__init__(terms * before, after)
        self.terms = terms
        for block in self.weight.data.chunk(terms, 1):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, adjacency: Tensor) -> Tensor:
        """Nodes (..., P, d) on graphs of ones and zeros (..., P, P)."""
        scale = inverse_root(adjacency.sum(-1, keepdim=True))
        # T_0, T_1, and T_k = 2 L T_k-1 - T_k-2; scaling the narrow side spares a second matrix.
        terms = [hidden]
        while len(terms) < self.terms:
            shifted = -scale * (adjacency @ (scale * terms[-1]))
            terms.append(shifted if len(terms) == 1 else 2 * shifted - terms[-2])
        return super().forward(torch.cat(terms, -1))


class TransformerConvolution(nn.Module):
    """``W_skip x_i + sum_j softmax_j(q_i . k_j / sqrt(d)) v_j`` over the senders j that i hears.

    Shi et al., Masked Label Prediction, 2021, with one head. A receiver that hears nobody keeps
    its skip part. Only queries have a bias: a softmax cancels that of keys, and a BatchNorm behind
    the layer those of skips and, where everybody hears somebody, of values.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.query = nn.Linear(before, after)
        self.key = nn.Linear(before, after, bias=False)
        self.value = nn.Linear(before, after, bias=False)
        self.skip = nn.Linear(before, after, bias=False)

    def tell(self, hidden: Tensor) -> Tensor:
        """Keys and values (2, N, d) of senders."""
        return torch.stack([self.key(hidden), self.value(hidden)])

    def forward(self, hidden: Tensor, told: Tensor, heard: Tensor) -> Tensor:
        """Receivers (B, before) to (B, d); ``heard`` (B, N) says whom each of them hears."""
        keys, values = told.unbind()
        scores = self.query(hidden) @ keys.T * keys.shape[-1] ** -0.5
        # The lowest number and not -inf, which gives NaN to those who hear nobody.
        attention = scores.masked_fill(~heard, torch.finfo(scores.dtype).min).softmax(-1) * heard
        return self.skip(hidden) + attention @ values


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


def hemispheres(rois: Rois) -> Tensor:
    """The group of every ROI, (P,).

    Labels L and R say it, and all others are midline; without labels the sign of the centroid
    does, and without centroids the first half of the ROIs is left and the second right.
    """
    sides = {"L": LEFT, "R": RIGHT}
    if any(label in sides for label in rois.hemispheres):
        return torch.tensor([sides.get(label, MIDLINE) for label in rois.hemispheres])
    known = sides_are_known(rois)
    is_left = (
        torch.as_tensor(rois.centroids)[:, 0] < 0
        if known
        else torch.arange(len(rois)) < len(rois) // 2
    )
    return torch.where(is_left, LEFT, RIGHT)


def sides_are_known(rois: Rois) -> bool:
    """Whether labels or centroids tell the hemisphere of the ROIs."""
    return bool({"L", "R"} & set(rois.hemispheres) or np.isfinite(rois.centroids[:, 0]).all())


class HemisphereConvolution(nn.Module):
    """A GCN layer with weights of its own for either hemisphere, on the edges inside of it.

    Midline ROIs have edges among themselves; there, what both weights give is averaged.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.left = glorot_linear(before, after)
        self.right = glorot_linear(before, after)

    def forward(self, parts: list[Tensor], weights: Tensor) -> Tensor:
        """Left, right and midline nodes (B, n, d), any of them none, to all nodes (B, P, e)."""
        sides = [(side.weight, side.bias) for side in (self.left, self.right)]
        sides.append(tuple((one + other) / 2 for one, other in zip(*sides)))
        heard, start = [], 0
        for part, (weight, bias) in zip(parts, sides):
            stop = start + part.shape[-2]
            if start == stop:
                continue
            # Flat, because a batch of slices would repeat the weight for every subject.
            projected = (part.flatten(0, 1) @ weight.T).unflatten(0, part.shape[:2])
            heard.append(propagate(weights[:, start:stop, start:stop], projected) + bias)
            start = stop
        return torch.cat(heard, -2)


class BrainEncoder(nn.Module):
    """Convolutions within, then across hemispheres; local-global pooling; flattened."""

    def __init__(
        self, n_rois: int, hidden: int, units: int, kept: float, clusters: float, rate: float
    ) -> None:
        super().__init__()
        self.rate = rate
        # ROIs come ordered as left, right, midline; the method knows how many there are.
        self.sizes = (n_rois, 0, 0)
        self.first = HemisphereConvolution(n_rois, hidden)
        self.second = HemisphereConvolution(hidden, units)
        self.across = glorot_linear(units, units)
        n_kept = math.ceil(kept * n_rois - 1e-9)
        n_clusters = math.ceil(clusters * n_rois - 1e-9)
        self.pooling = LocalGlobalPooling(units, n_kept, n_clusters)
        self.width = n_kept * units

    def forward(self, fc: Tensor, edges: Tensor, key: Tensor | None = None) -> Tensor:
        """FC rows and edges (B, P, P) to (B, width); no dropout without a key."""
        weights, adjacency = fc.abs() * edges, edges.to(fc.dtype)
        hidden = self.within(fc, weights, key)
        across = propagate(weights, hidden @ self.across.weight.T) + self.across.bias
        hidden = functional.leaky_relu(across)
        return self.pooling(hidden, adjacency).flatten(-2)

    def within(self, nodes: Tensor, weights: Tensor, key: Tensor | None = None) -> Tensor:
        """Both convolutions inside hemispheres, (B, P, P) to (B, P, units)."""
        parts = [
            dropout(part, self.rate, key, group) if part.numel() else part
            for group, part in enumerate(nodes.split(self.sizes, -2))
        ]
        hidden = functional.leaky_relu(self.first(parts, weights))
        hidden = dropout(hidden, self.rate, key, MIDLINE + 1)
        return functional.leaky_relu(self.second(list(hidden.split(self.sizes, -2)), weights))


def glorot_linear(before: int, after: int) -> nn.Linear:
    """A Linear with the initial weights of a GCN: Glorot's, and no bias."""
    linear = nn.Linear(before, after)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
