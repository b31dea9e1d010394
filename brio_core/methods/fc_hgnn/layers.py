"""Layers of FC-HGNN: Chebyshev convolutions, attention to other subjects, and the pooling."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.connectivity.graphs import inverse_root
from brio_core.kernels.functions import Fused
from brio_core.methods.layers.perceptrons import row_linear

# Tensor cores read rows at full speed whose length is a multiple of so many numbers.
GRAIN = 4


class Laplacian(NamedTuple):
    """``matrix`` (..., P, P) is ``-D^-1/2 A D^-1/2`` of a graph A, and ``root`` (..., P, 1) D^1/2.

    The matrix is the normalised Laplacian scaled to [-1, 1] by its bound of 2. D has no self-loops,
    and a node without edges has zeros.
    """

    matrix: Tensor
    root: Tensor

    @classmethod
    def of(cls, adjacency: Tensor) -> "Laplacian":
        """The Laplacian of graphs of ones and zeros."""
        degree = adjacency.sum(-1, keepdim=True)
        scale = inverse_root(degree)
        return cls(-scale * adjacency * scale.mT, degree.sqrt())

    def heard(self, values: Tensor) -> Tensor:
        """``A @ values``."""
        return -self.root * (self.matrix @ (self.root * values))


class DenseChebyshev(nn.Linear):
    """``sum_k T_k(L) X W_k + b`` for a Laplacian L."""

    def __init__(self, before: int, after: int, terms: int = 3) -> None:
        super().__init__(terms * before, after)
        self.terms = terms
        for block in self.weight.data.chunk(terms, 1):
            nn.init.xavier_uniform_(block)
        nn.init.zeros_(self.bias)

    def forward(self, hidden: Tensor, graph: Laplacian) -> Tensor:
        """Nodes (..., P, d)."""
        # T_0, T_1, and T_k = 2 L T_k-1 - T_k-2.
        terms = [hidden]
        while len(terms) < self.terms:
            shifted = graph.matrix @ terms[-1]
            terms.append(shifted if len(terms) == 1 else 2 * shifted - terms[-2])
        # The bias is the weight of a one: the result is large, and no addition passes over it.
        fill = GRAIN - self.weight.shape[1] % GRAIN
        ones = functional.pad(torch.ones_like(hidden[..., :1]), (0, fill - 1))
        weight = torch.cat([self.weight, self.bias[:, None]], -1)
        weight = functional.pad(weight, (0, fill - 1))
        return row_linear(torch.cat([*terms, ones], -1), weight)


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

    def layers(self) -> tuple[nn.Linear, ...]:
        """Keys, values, queries and skips, which may be found together."""
        return self.key, self.value, self.query, self.skip

    def forward(self, hidden: Tensor, told: Tensor, heard: Tensor) -> Tensor:
        """Receivers (B, before) to (B, d), who hear keys and values ``told`` (2, N, d).

        ``heard`` (B, N) says whom each of them hears.
        """
        asked, own = (layer(hidden) for layer in (self.query, self.skip))
        return attended(asked, own, told, *silence(heard))


def silence(heard: Tensor) -> tuple[Tensor, Tensor]:
    """What is added to scores (..., B, N), and whether a receiver hears anybody (..., B, 1)."""
    lowest = torch.finfo(torch.get_default_dtype()).min
    # The lowest number and not -inf, which gives NaN to those who hear nobody.
    return torch.where(heard, 0.0, lowest), heard.any(-1, keepdim=True)


def attended(asked: Tensor, own: Tensor, told: Tensor, silent: Tensor, hears: Tensor) -> Tensor:
    """``own`` and what is heard, (B, d), by queries (B, d); see :class:`TransformerConvolution`."""
    keys, values = told.unbind()
    scores = (asked * keys.shape[-1] ** -0.5) @ keys.T + silent
    return own + hears * (scores.softmax(-1) @ values)


class NodeScore(nn.Module):
    """``tanh(X w_own + A X w_heard + b)``, the score of SAGPooling (Lee et al., 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, 1, bias=False)
        self.heard = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, graph: Laplacian) -> Tensor:
        """Scores (..., P) of nodes (..., P, d)."""
        # Projected first, so that one column and not d of them meets the graph.
        heard = graph.heard(hidden @ self.heard.weight.T)
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

    def forward(self, hidden: Tensor, graph: Laplacian) -> Tensor:
        """Nodes (B, P, d) to the kept ones (B, n, d), in their order."""
        score = self.score(hidden, graph)
        shared = shared_by_clusters(self.assign(hidden, graph), hidden)
        pooled = torch.addcmul(shared, hidden, score[..., None])
        return take_nodes(pooled, *highest(score.detach(), self.kept))


def shared_by_clusters(logits: Tensor, nodes: Tensor) -> Tensor:
    """``S (S' H)`` with S the softmax of logits (..., P, K), for nodes H (..., P, d)."""
    # Mixed precision is left to torch.
    if torch.is_autocast_enabled(nodes.device.type):
        assignment = logits.softmax(-1)
        return assignment @ (assignment.mT @ nodes)
    return _Shared.apply(logits, nodes)[0]


class _Shared(Fused):
    """Assignments are many and nodes are narrow, so the way back passes over the former twice."""

    @staticmethod
    def run(logits, nodes):
        assignment = logits.softmax(-1)
        coarse = assignment.mT @ nodes
        return assignment @ coarse, assignment, coarse

    @staticmethod
    def keep(inputs, output):
        return inputs[1], *output

    @staticmethod
    def slopes(grad, nodes, out, assignment, coarse):
        onward = assignment.mT @ grad
        to_nodes = assignment @ onward
        # What a softmax takes off its gradient G C' + H O' is the same in all of a row, and known
        # from narrow tensors: it is one more column. Tensor cores read that in two parts.
        level = (grad * out + nodes * to_nodes).sum(-1, keepdim=True)
        coarsely = level.to(torch.bfloat16).to(level.dtype)
        left = torch.cat([grad, nodes, -coarsely, coarsely - level], -1)
        ones = torch.ones_like(coarse[..., :2])
        right = torch.cat([coarse, onward, ones], -1)
        fill = (0, -left.shape[-1] % GRAIN)
        product = functional.pad(left, fill) @ functional.pad(right, fill).mT
        return product.mul_(assignment), to_nodes


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
