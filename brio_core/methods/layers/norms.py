"""Normalisation of nodes and edges, with what follows it in a layer, which a GPU does at once."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.methods.layers.edge_scores import edge_moments
from brio_core.methods.layers.perceptrons import drawn
from brio_core.system.randomness import dropout


class NodeNorm(nn.BatchNorm1d):
    """One statistic per channel over all nodes of all graphs in the batch, (..., P, d)."""

    def forward(self, hidden: Tensor) -> Tensor:
        if not self.training:
            return evaluated(self, hidden)
        return super().forward(hidden.flatten(0, -2)).view_as(hidden)


class MaskedNorm(nn.BatchNorm1d):
    """BatchNorm of rows (B, d) whose statistics count only those that are ``present`` (B,).

    All are where nothing else is said.
    """

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        if not self.training:
            return evaluated(self, hidden)
        if present is None:
            return super().forward(hidden)
        weight = present.to(self.weight.dtype)[:, None]
        count = weight.sum()
        mean = (weight * hidden).sum(0) / count
        centred = hidden - mean
        variance = (weight * centred.square()).sum(0) / count
        remember(self, mean, variance, count)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias


def evaluated(norm: nn.Module, hidden: Tensor) -> Tensor:
    """The norm by its running statistics. Torch's own BatchNorm copies what folds give it."""
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return torch.addcmul(norm.bias - norm.running_mean * scale, hidden, scale)


def remember(norm: nn.Module, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """Update running statistics in place, as BatchNorm does."""
    unbiased = variance.detach() * (count / (count - 1))
    for running, value in ((norm.running_mean, mean.detach()), (norm.running_var, unbiased)):
        running.mul_(1 - norm.momentum).add_(norm.momentum * value)
    if getattr(norm, "num_batches_tracked", None) is not None:
        norm.num_batches_tracked.add_(1)


def norm_relu(
    values: Tensor,
    norm: nn.Module,
    rate: float = 0.0,
    key: Tensor | None = None,
    stream: int = 0,
    relu: bool = True,
    present: Tensor | None = None,
) -> Tensor:
    """``dropout(relu(norm(values)))``, or without the ReLU; no dropout without a key.

    ``norm`` is a BatchNorm over all but the last axis of values (..., d), with the names that
    ``nn.BatchNorm1d`` has; its weight (*K, d) may have axes of experts, which lead the values.
    With ``present`` (B,) it is a MaskedNorm of rows (B, d); absent rows are left undefined.
    """
    if norm.training and kernels.usable(values, "norm_relu"):
        from brio_core.kernels.norm_relu import NormRelu

        seed, rate = drawn(values, rate, key, stream)
        inputs = (values, norm.weight, norm.bias, seed, present, rate, norm.eps, relu)
        out, mean, variance = NormRelu.apply(*inputs)
        count = values.numel() // mean.numel() if present is None else present.sum()
        remember(norm, mean, variance, count)
        return out
    normed = norm(values) if present is None else norm(values, present)
    return dropout(normed.relu() if relu else normed, rate, key, stream)


def batch_normed_sides(
    sender: Tensor, receiver: Tensor, mask: Tensor, norm: nn.BatchNorm1d
) -> tuple[Tensor, Tensor]:
    """Both sides, so that their sum is what BatchNorm over all edges of the batch gives.

    Exact without a vector per edge: moments of ``s_i + r_j`` need one product with the graph.
    """
    if norm.training:
        given = (sender, receiver, norm.weight, norm.bias, mask, norm.eps)
        *sides, first, second, variance, count = _NormedSides.apply(*given)
        remember(norm, (first + second).flatten(), variance.flatten(), count.squeeze())
        return tuple(sides)
    # Only the sum is remembered: which side the mean is taken from does not matter.
    scale = norm.weight * (norm.running_var + norm.eps).rsqrt()
    return torch.addcmul(norm.bias - norm.running_mean * scale, sender, scale), receiver * scale


class _NormedSides(torch.autograd.Function):
    """Sides by the batch's statistics, and those; half of the passes of autograd's derivative."""

    generate_vmap_rule = True

    @staticmethod
    def forward(sender, receiver, weight, bias, mask, epsilon):
        first, second, variance, count = edge_moments(sender, receiver, mask, (0, -2))
        scale = weight * (variance + epsilon).rsqrt()
        left = torch.addcmul(bias - first * scale, sender, scale)
        right = torch.addcmul(-second * scale, receiver, scale)
        return left, right, first, second, variance, count

    @staticmethod
    def setup_context(ctx, inputs, output):
        sender, receiver, weight, _, mask, ctx.epsilon = inputs
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(sender, receiver, weight, mask, *output[2:])

    @staticmethod
    def backward(ctx, *grads):
        *sides, weight, mask, first, second, variance, count = ctx.saved_tensors
        inverse, degree = (variance + ctx.epsilon).rsqrt(), mask.sum(-1, keepdim=True)
        centres = (-mean * inverse for mean in (first, second))
        sides = [torch.addcmul(centre, side, inverse) for centre, side in zip(centres, sides)]
        # Both sides share one deviation, each has a mean of its own.
        along = sum((grad * side).sum((0, -2)) for grad, side in zip(grads, sides))
        sums = [grad.sum((0, -2)) for grad in grads[:2]]
        found = []
        for grad, side, other, total in zip(grads, sides, reversed(sides), sums):
            slope = torch.addcmul(mask @ other, degree, side)
            slope = torch.addcmul(grad, slope, -along / count)
            found.append(torch.addcmul(slope, degree, -total / count) * (weight * inverse))
        return *found, along, sums[0], None, None


def residual_norm(hidden: Tensor, own: Tensor, received: Tensor, norm: nn.LayerNorm) -> Tensor:
    """``norm(hidden + GELU(own + received))``; one kernel where the width is a power of two."""
    width = hidden.shape[-1]
    if width & (width - 1) == 0 and kernels.usable(hidden, "residual_norm"):
        from brio_core.kernels.residual_norm import ResidualNorm

        # Under bfloat16 products come in half the bytes, the residual stream does not.
        own, received = own.to(hidden.dtype), received.to(hidden.dtype)
        return ResidualNorm.apply(hidden, own, received, norm.weight, norm.bias, norm.eps)
    return norm(hidden + functional.gelu(own + received))
