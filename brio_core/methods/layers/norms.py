"""Normalisation of node features, with what follows it in a layer; a GPU does it in one kernel."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.system.randomness import dropout, fold_in


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

        # The place that ``randomness.uniform`` looks up for this stream.
        seed = values.new_zeros((), dtype=torch.int64) if key is None else fold_in(key, stream + 1)
        options = (rate if key is not None else 0.0, norm.eps, relu)
        inputs = (values, norm.weight, norm.bias, seed, present)
        out, mean, variance = NormRelu.apply(*inputs, *options)
        count = values.numel() // mean.numel() if present is None else present.sum()
        remember(norm, mean, variance, count)
        return out
    normed = norm(values) if present is None else norm(values, present)
    return dropout(normed.relu() if relu else normed, rate, key, stream)


def residual_norm(hidden: Tensor, own: Tensor, received: Tensor, norm: nn.LayerNorm) -> Tensor:
    """``norm(hidden + GELU(own + received))``; one kernel where the width is a power of two."""
    width = hidden.shape[-1]
    if width & (width - 1) == 0 and kernels.usable(hidden, "residual_norm"):
        from brio_core.kernels.residual_norm import ResidualNorm

        # Under bfloat16 products come in half the bytes, the residual stream does not.
        own, received = own.to(hidden.dtype), received.to(hidden.dtype)
        return ResidualNorm.apply(hidden, own, received, norm.weight, norm.bias, norm.eps)
    return norm(hidden + functional.gelu(own + received))
