"""A one-hidden-layer network on pairs of nodes, without a hidden layer per pair in memory.

The first linear layer of ``[h_i ; h_j]`` is ``s_i + r_j``, so the score of a pair is
``sum_k w_k relu(s_ik + r_jk)``. Every hidden unit adds its share to one (P, P) matrix, forward and
backward; a tensor of all pairs and units would be as many times larger as there are units.
"""

import torch
from torch import Tensor

from brio_core import kernels


def pair_scores(sender: Tensor, receiver: Tensor, weight: Tensor) -> Tensor:
    """``sum_k w_k relu(s_ik + r_jk)``; (*W, ..., P, D) twice and (*W, D) give (*W, ..., P, P)."""
    return PairScores.apply(sender, receiver, weight)


class PairScores(torch.autograd.Function):
    """Scores of all pairs; the backward pass needs no more than which units are open."""

    @staticmethod
    def forward(sender, receiver, weight):
        if kernels.usable(sender):
            from brio_core.kernels.pair_scores import scores

            columns = (_columns(side) for side in (sender, receiver))
            flat = scores(*columns, weight.reshape(-1, weight.shape[-1]))
            return flat.view(*sender.shape[:-1], sender.shape[-2])
        return _scores(sender, receiver, _beside(weight, sender))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return _PairScoresBackward.apply(*ctx.saved_tensors, grad)

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return PairScores.apply(*_to_front(info, in_dims, tensors)), 0


class _PairScoresBackward(torch.autograd.Function):
    @staticmethod
    def forward(sender, receiver, weight, grad):
        if kernels.usable(sender):
            from brio_core.kernels.pair_scores import open_sums

            s, r = _columns(sender), _columns(receiver)
            above = grad.contiguous().view(len(s), *grad.shape[-2:])
            sent = open_sums(s, r, above, transposed=False).mT.view_as(sender)
            received = open_sums(r, s, above, transposed=True).mT.view_as(receiver)
        else:
            sent, received = _open_sums(sender, receiver, grad)
        # relu(x) = x [x > 0], so the weights' gradient follows from the same sums.
        share = sender * sent + receiver * received
        inner = tuple(range(weight.ndim - 1, share.ndim - 1))
        beside = _beside(weight, sender)
        return beside * sent, beside * received, share.sum(inner)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *grads):
        raise RuntimeError("second derivatives of pair scores are not available")

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return _PairScoresBackward.apply(*_to_front(info, in_dims, tensors)), (0, 0, 0)


def _to_front(info, in_dims, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Give every tensor the mapped axis in front."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims)
    ]


def _columns(side: Tensor) -> Tensor:
    """(graphs, D, P): neighbouring nodes are neighbours in memory."""
    return side.mT.contiguous().view(-1, side.shape[-1], side.shape[-2])


def _beside(weight: Tensor, side: Tensor) -> Tensor:
    """The weights, with axes of length one for the graphs and nodes that share them."""
    ones = [1] * (side.ndim - weight.ndim)
    return weight.view(*weight.shape[:-1], *ones, weight.shape[-1])


def _units(side: Tensor) -> Tensor:
    return side.movedim(-1, 0).contiguous()


def _scores(sender: Tensor, receiver: Tensor, weight: Tensor) -> Tensor:
    total = sender.new_zeros(*sender.shape[:-1], sender.shape[-2])
    for left, right, scale in zip(_units(sender), _units(receiver), _units(weight)):
        total.addcmul_((left[..., :, None] + right[..., None, :]).relu_(), scale[..., None])
    return total


def _open_sums(sender: Tensor, receiver: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Per node and unit, the gradients of all pairs whose unit is open."""
    sent, received = [], []
    for left, right in zip(_units(sender), _units(receiver)):
        hidden = left[..., :, None] + right[..., None, :]
        through = torch.ops.aten.threshold_backward(grad, hidden, 0)
        sent.append(through.sum(-1))
        received.append(through.sum(-2))
    return torch.stack(sent, -1), torch.stack(received, -1)
