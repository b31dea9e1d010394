"""Normalisation of node features."""

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.methods.layers.fused import remember


class NodeNorm(nn.BatchNorm1d):
    """One statistic per channel over all nodes of all graphs in the batch, (..., P, d)."""

    def forward(self, hidden: Tensor) -> Tensor:
        return super().forward(hidden.flatten(0, -2)).view_as(hidden)


class MaskedNorm(nn.BatchNorm1d):
    """BatchNorm of rows (B, d) whose statistics count only those that are ``present`` (B,).

    All are where nothing else is said.
    """

    def forward(self, hidden: Tensor, present: Tensor | None = None) -> Tensor:
        if present is None or not self.training:
            return super().forward(hidden)
        weight = present.to(self.weight.dtype)[:, None]
        count = weight.sum()
        mean = (weight * hidden).sum(0) / count
        centred = hidden - mean
        variance = (weight * centred.square()).sum(0) / count
        remember(self, mean, variance, count)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias


class SiteNorm(nn.BatchNorm1d):
    """BatchNorm of (S, ..., d) that takes every site for a batch of its own.

    Running statistics are those that the sites would leave if they came one after another.
    """

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            return super().forward(values.flatten(0, -2)).view_as(values)
        normed, mean, variance = self._normed(values)
        count = values[0].numel() // values.shape[-1]
        remember_in_turn(self.running_mean, mean, self.momentum)
        remember_in_turn(self.running_var, variance * (count / (count - 1)), self.momentum)
        self.num_batches_tracked.add_(len(values))
        return normed

    def _normed(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The result, and mean and variance (S, d) of every site."""
        if kernels.usable(values):
            from brio_core.kernels.norm_relu import NormRelu

            weight, bias = (part.expand(len(values), -1) for part in (self.weight, self.bias))
            no_dropout = (values.new_zeros((), dtype=torch.int64), 0.0)
            return NormRelu.apply(values, weight, bias, *no_dropout, self.eps, False)
        axes = tuple(range(1, values.ndim - 1))
        mean = values.mean(axes, keepdim=True)
        centred = values - mean
        variance = centred.square().mean(axes, keepdim=True)
        normed = centred * (variance + self.eps).rsqrt() * self.weight + self.bias
        return normed, mean.flatten(0, -2), variance.flatten(0, -2)


def remember_in_turn(running: Tensor, statistics: Tensor, momentum: float) -> None:
    """Update a running statistic (d,) in place with those of sites (S, d), the last one last."""
    turns = torch.arange(len(statistics) - 1, -1, -1, device=running.device)
    weights = momentum * (1 - momentum) ** turns
    latest = (weights[:, None] * statistics.detach()).sum(0)
    running.mul_((1 - momentum) ** len(statistics)).add_(latest)
