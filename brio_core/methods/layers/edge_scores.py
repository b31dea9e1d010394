"""A one-hidden-layer network on edges, without a hidden layer per edge in memory.

The first linear layer of ``[h_i ; h_j]`` is ``s_i + r_j``, so the score of an edge i -> j is
``sum_k w_k relu(s_ik + r_jk)``. Backward needs no more than which units are open: a bit for each.
"""

import torch
from torch import Tensor

from brio_core import kernels
from brio_core.kernels.mapping import Derivative, to_front
from brio_core.methods.layers.edge_lists import EdgeLists


def edge_scores(sender: Tensor, receiver: Tensor, weight: Tensor, edges: EdgeLists) -> Tensor:
    """Scores of both directions of all edges, (*K, B, 2, E); zero in empty places.

    ``sender`` and ``receiver`` are (B, P, *K, D) and ``weight`` (*K, D), with an axis K of
    experts or without one.
    """
    if kernels.usable(sender):
        lists = (edges.pairs, edges.order, edges.starts)
        return EdgeScores.apply(sender, receiver, weight, *lists)[0].unflatten(-1, (2, -1))
    if weight.ndim > 1:
        sender, receiver = sender.movedim(-2, 0), receiver.movedim(-2, 0)
    return edges.collect(PairScores.apply(sender, receiver, weight))


def _beside(weight: Tensor, side: Tensor) -> Tensor:
    """The weights, with axes of length one for the graphs and nodes that share them."""
    ones = [1] * (side.ndim - weight.ndim)
    return weight.view(*weight.shape[:-1], *ones, weight.shape[-1])


class EdgeScores(torch.autograd.Function):
    """Listed edges only, by fused kernels; beside the scores, which units of an edge are open."""

    @staticmethod
    def forward(sender, receiver, weight, pairs, order, starts):
        from brio_core.kernels.edge_scores import scores

        inputs = (sender, receiver, weight, pairs, starts)
        return scores(*(tensor.contiguous() for tensor in inputs))

    @staticmethod
    def setup_context(ctx, inputs, output):
        sender, receiver, weight, _, *lists = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(sender, receiver, weight, output[1], *lists)

    @staticmethod
    def backward(ctx, grad, _):
        return *_EdgeScoresBackward.apply(*ctx.saved_tensors, grad), None, None, None

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return EdgeScores.apply(*to_front(info, in_dims, tensors)), (0, 0)


class _EdgeScoresBackward(Derivative):
    @staticmethod
    def forward(*tensors):
        from brio_core.kernels.edge_scores import gradients

        return gradients(*(tensor.contiguous() for tensor in tensors))

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return _EdgeScoresBackward.apply(*to_front(info, in_dims, tensors)), (0, 0, 0)


class PairScores(torch.autograd.Function):
    """All pairs of nodes (*K, B, P, D), one hidden unit after the other: the plain twin."""

    @staticmethod
    def forward(sender, receiver, weight):
        total = sender.new_zeros(*sender.shape[:-1], sender.shape[-2])
        units = zip(*map(_units, (sender, receiver, _beside(weight, sender))))
        for left, right, scale in units:
            total.addcmul_((left[..., :, None] + right[..., None, :]).relu_(), scale[..., None])
        return total

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return _PairScoresBackward.apply(*ctx.saved_tensors, grad)

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return PairScores.apply(*to_front(info, in_dims, tensors)), 0


class _PairScoresBackward(Derivative):
    @staticmethod
    def forward(sender, receiver, weight, grad):
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

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return _PairScoresBackward.apply(*to_front(info, in_dims, tensors)), (0, 0, 0)


def _units(side: Tensor) -> Tensor:
    return side.movedim(-1, 0).contiguous()
