"""Scores of edges from the nodes at their ends: ``w . relu(norm(W [h_i ; h_j]))``.

One hidden layer, without a vector per edge in memory: the first linear layer of ``[h_i ; h_j]`` is
``s_i + r_j``, so the score of an edge i -> j is ``sum_k w_k relu(s_ik + r_jk)``. Backward needs no
more than which units are open: a bit for each. Normalisation over edges is exact all the same:
sums over edges of ``s_i + r_j`` and of its square need degrees and one product with the graph only.
"""

import torch
from torch import Tensor

from brio_core import kernels
from brio_core.kernels.functions import Fused
from brio_core.methods.layers.edge_lists import EdgeLists

EPSILON = 1e-5


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


def normed_sides(sender: Tensor, receiver: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides, so that each unit of their sum is normalised over the edges of every graph."""
    if kernels.usable(sender, "normed_sides"):
        from brio_core.kernels.normed_sides import MOST_NODES, NormedSides

        if sender.shape[-2] <= MOST_NODES:
            return NormedSides.apply(sender, receiver, mask)[:2]
    return _NormedSides.apply(sender, receiver, mask)[:2]


class _NormedSides(torch.autograd.Function):
    """Normalised sides and ``1 / sigma``. Its derivative takes half the passes of autograd's.

    There is no second derivative: ``1 / sigma`` is taken as a constant.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(sender, receiver, mask):
        first, second, variance, _ = edge_moments(sender, receiver, mask, (-2,))
        scale = (variance + EPSILON).rsqrt()
        return (sender - first) * scale, (receiver - second) * scale, scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output[2])
        ctx.save_for_backward(*output, inputs[2])

    @staticmethod
    def backward(ctx, *grads):
        *sides, scale, mask = ctx.saved_tensors
        degree = mask.sum(-1, keepdim=True)
        count = degree.sum(-2, keepdim=True)
        # Both sides share sigma, each has a mean of its own.
        along = sum((grad * side).sum(-2, keepdim=True) for grad, side in zip(grads, sides)) / count
        found = []
        for grad, side, other in zip(grads, sides, reversed(sides)):
            mean = grad.sum(-2, keepdim=True) / count
            slope = torch.addcmul(grad, torch.addcmul(mask @ other, degree, side), -along)
            found.append(torch.addcmul(slope, degree, -mean) * scale)
        return *found, None
