"""Scores of edges from the nodes at their ends: ``w . relu(norm(W [h_i ; h_j])) + b``.

One hidden layer, without a vector per edge in memory: the first linear layer of ``[h_i ; h_j]`` is
``s_i + r_j``, so the score of an edge i -> j is ``sum_k w_k relu(s_ik + r_jk)``. Backward needs no
more than which units are open: a bit for each. Normalisation over edges is exact all the same:
sums over edges of ``s_i + r_j`` and of its square need degrees and one product with the graph only.
"""

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.kernels.functions import Fused
from brio_core.methods.layers.edge_lists import EdgeLists


class EdgeScorer(nn.Module):
    """Logits of all directed edges (B, 2, E); empty places hold the bias.

    ``norm`` is taken over the edges of each graph (``instance``: no weights, no memory), over all
    edges of the batch (``batch``: as BatchNorm, running statistics in evaluation), or not at all.
    """

    def __init__(self, width: int, hidden: int, norm: str) -> None:
        super().__init__()
        # A norm removes the bias.
        self.first = nn.Linear(2 * width, hidden, bias=norm == "none")
        self.last = nn.Linear(hidden, 1)
        self.norm = NORMS[norm](hidden)

    def forward(
        self, hidden: Tensor, edges: EdgeLists, mask: Tensor, keep: Tensor | None = None
    ) -> Tensor:
        """``mask`` is ``edges.mask``; ``keep`` (B, units) scales hidden units, as dropout does.

        A unit is dropped for all edges of a graph at once: relu(k x) = k relu(x) for k >= 0.
        """
        send, receive = self.first.weight.chunk(2, -1)
        sender, receiver = hidden @ send.T, hidden @ receive.T
        if self.first.bias is not None:
            sender = sender + self.first.bias
        sender, receiver = self.norm(sender, receiver, mask, keep)
        return edge_scores(sender, receiver, self.last.weight.squeeze(0), edges) + self.last.bias


def edge_scores(sender: Tensor, receiver: Tensor, weight: Tensor, edges: EdgeLists) -> Tensor:
    """Scores of both directions of all edges, (*K, B, 2, E); zero in empty places.

    ``sender`` and ``receiver`` are (B, P, *K, D) and ``weight`` (*K, D), with an axis K of
    experts or without one.
    """
    if kernels.usable(sender, "edge_scores"):
        from brio_core.kernels.edge_scores import EdgeScores

        lists = (edges.pairs, edges.order, edges.starts)
        return EdgeScores.apply(sender, receiver, weight, *lists)[0].unflatten(-1, (2, -1))
    if weight.ndim > 1:
        sender, receiver = sender.movedim(-2, 0), receiver.movedim(-2, 0)
    return edges.collect(PairScores.apply(sender, receiver, weight))


def _beside(weight: Tensor, side: Tensor) -> Tensor:
    """The weights, with axes of length one for the graphs and nodes that share them."""
    ones = [1] * (side.ndim - weight.ndim)
    return weight.view(*weight.shape[:-1], *ones, weight.shape[-1])


class PairScores(Fused):
    """All pairs of nodes (*K, B, P, D), one hidden unit after the other: the plain twin."""

    # Torch adds up in the order of the memory, so a copy would change the last digits.
    contiguous = False

    @staticmethod
    def run(sender, receiver, weight):
        total = sender.new_zeros(*sender.shape[:-1], sender.shape[-2])
        units = zip(*map(_units, (sender, receiver, _beside(weight, sender))))
        for left, right, scale in units:
            total.addcmul_((left[..., :, None] + right[..., None, :]).relu_(), scale[..., None])
        return total

    @staticmethod
    def slopes(grad, sender, receiver, weight):
        parts = []
        for left, right in zip(_units(sender), _units(receiver)):
            hidden = left[..., :, None] + right[..., None, :]
            through = torch.ops.aten.threshold_backward(grad, hidden, 0)
            parts.append((through.sum(-1), through.sum(-2)))
        # Per node and unit, the gradients of all its pairs whose unit is open.
        sent, received = (torch.stack(side, -1) for side in zip(*parts))
        # relu(x) = x [x > 0], so the weights' gradient follows from the same sums.
        share = sender * sent + receiver * received
        scale = _beside(weight, sender)
        inner = tuple(range(weight.ndim - 1, share.ndim - 1))
        return scale * sent, scale * received, share.sum(inner)


def _units(side: Tensor) -> Tensor:
    return side.movedim(-1, 0).contiguous()


def edge_moments(
    sender: Tensor, receiver: Tensor, mask: Tensor, over: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Means of both sides, the variance of their sum, and the number of edges.

    ``mask`` (B, P, P) is symmetric; sums run over nodes (``over`` = (-2,)) or over graphs and
    nodes (``over`` = (0, -2)), and keep those axes with length one.
    """
    degree = mask.sum(-1, keepdim=True)
    count = degree.sum(over, keepdim=True)
    means = [(degree * side).sum(over, keepdim=True) / count for side in (sender, receiver)]
    left, right = sender - means[0], receiver - means[1]
    squares = degree * (left.square() + right.square()) + 2 * left * (mask @ right)
    variance = squares.sum(over, keepdim=True) / count
    # Rounding may leave a number just below zero where all edges are alike.
    return *means, variance.clamp_min(0), count


Sides = tuple[Tensor, Tensor]


def _dropped(sender: Tensor, receiver: Tensor, keep: Tensor | None) -> Sides:
    if keep is None:
        return sender, receiver
    return sender * keep[..., None, :], receiver * keep[..., None, :]


class NoEdgeNorm(nn.Module):
    """Leaves both sides as they are, but for dropped units."""

    def __init__(self, hidden: int) -> None:
        super().__init__()

    def forward(self, sender: Tensor, receiver: Tensor, mask: Tensor, keep: Tensor | None) -> Sides:
        return _dropped(sender, receiver, keep)


class InstanceEdgeNorm(NoEdgeNorm):
    """Normalises each hidden unit over the edges of every graph on its own."""

    epsilon = 1e-5

    def forward(self, sender: Tensor, receiver: Tensor, mask: Tensor, keep: Tensor | None) -> Sides:
        first, second, variance, _ = edge_moments(sender, receiver, mask, (-2,))
        scale = (variance + self.epsilon).rsqrt()
        return _dropped((sender - first) * scale, (receiver - second) * scale, keep)


class BatchEdgeNorm(nn.Module):
    """BatchNorm of each hidden unit over all edges of the batch."""

    epsilon = 1e-5
    momentum = 0.1

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.register_buffer("running_mean", torch.zeros(hidden))
        self.register_buffer("running_var", torch.ones(hidden))

    def forward(self, sender: Tensor, receiver: Tensor, mask: Tensor, keep: Tensor | None) -> Sides:
        if self.training:
            first, second, variance, count = edge_moments(sender, receiver, mask, (0, -2))
            self._remember((first + second).detach(), variance.detach() * count / (count - 1))
        else:
            # Only the sum is remembered: which side the mean is taken from does not matter.
            first, second, variance = self.running_mean, 0.0, self.running_var
        scale = self.weight * (variance + self.epsilon).rsqrt()
        return _dropped((sender - first) * scale + self.bias, (receiver - second) * scale, keep)

    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        for running, value in ((self.running_mean, mean), (self.running_var, variance)):
            running.mul_(1 - self.momentum).add_(self.momentum * value.flatten())


NORMS = {"none": NoEdgeNorm, "instance": InstanceEdgeNorm, "batch": BatchEdgeNorm}
