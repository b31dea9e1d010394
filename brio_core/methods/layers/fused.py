"""Ends of layers that a GPU does in one kernel, and the plain torch they stand for."""

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.system.randomness import dropout, fold_in


def norm_relu(
    values: Tensor, norm: nn.Module, rate: float = 0.0, key: Tensor | None = None, stream: int = 0
) -> Tensor:
    """``dropout(relu(norm(values)))``; no dropout without a key.

    ``norm`` is a BatchNorm over all but the last axis of values (..., d), with the names that
    ``nn.BatchNorm1d`` has; its weight (*K, d) may have axes of experts, which lead the values.
    """
    if norm.training and kernels.usable(values):
        return _fused_norm(values, norm, rate, key, stream, relu=True)
    activated = norm(values).relu()
    return activated if key is None else dropout(activated, rate, key, stream)


def norm_dropout(
    values: Tensor, norm: nn.Module, rate: float, key: Tensor | None, stream: int
) -> Tensor:
    """``dropout(norm(values))``, as :func:`norm_relu` has it but without a ReLU."""
    if norm.training and kernels.usable(values):
        return _fused_norm(values, norm, rate, key, stream, relu=False)
    normed = norm(values)
    return normed if key is None else dropout(normed, rate, key, stream)


def _fused_norm(
    values: Tensor, norm: nn.Module, rate: float, key: Tensor | None, stream: int, relu: bool
) -> Tensor:
    from brio_core.kernels.norm_relu import NormRelu

    # The place that ``randomness.uniform`` looks up for this stream.
    seed = values.new_zeros((), dtype=torch.int64) if key is None else fold_in(key, stream + 1)
    options = (rate if key is not None else 0.0, norm.eps, relu)
    out, mean, variance = NormRelu.apply(values, norm.weight, norm.bias, seed, *options)
    remember(norm, mean, variance, values.numel() // mean.numel())
    return out


def remember(norm: nn.Module, mean: Tensor, variance: Tensor, count: int | Tensor) -> None:
    """Update running statistics in place, as BatchNorm does."""
    unbiased = variance.detach() * (count / (count - 1))
    for running, value in ((norm.running_mean, mean.detach()), (norm.running_var, unbiased)):
        running.mul_(1 - norm.momentum).add_(norm.momentum * value)
    if getattr(norm, "num_batches_tracked", None) is not None:
        norm.num_batches_tracked.add_(1)


def centre_relu(hidden: Tensor, heard: Tensor, centre: Tensor, bias: Tensor) -> Tensor:
    """``relu(centre * hidden + heard + bias)``: the first half of a GIN's network.

    Nodes and messages are (K, B, P, d), ``centre`` (K, B, P, 1), ``bias`` (K, d).
    """
    if kernels.usable(hidden):
        from brio_core.kernels.centre_relu import CentreRelu

        return CentreRelu.apply(hidden, heard, centre, bias)
    return (torch.addcmul(heard, hidden, centre) + bias[:, None, None]).relu()


def softmax_dropout(scores: Tensor, rate: float, key: Tensor | None, stream: int) -> Tensor:
    """Softmax over the last axis, then dropout; no dropout without a key."""
    if key is not None and rate > 0 and kernels.usable(scores):
        from brio_core.kernels.softmax_dropout import SoftmaxDropout

        return SoftmaxDropout.apply(scores, fold_in(key, stream + 1), rate)
    attention = scores.softmax(-1)
    return attention if key is None else dropout(attention, rate, key, stream)


def relu_dropout(
    values: Tensor, bias: Tensor, rate: float, key: Tensor | None, stream: int
) -> Tensor:
    """``dropout(relu(values + bias))``; no dropout without a key."""
    if key is not None and rate > 0 and kernels.usable(values):
        from brio_core.kernels.relu_dropout import ReluDropout

        return ReluDropout.apply(values, bias, fold_in(key, stream + 1), rate)
    activated = (values + bias).relu()
    return activated if key is None else dropout(activated, rate, key, stream)


def dropout_norm(
    hidden: Tensor,
    values: Tensor,
    bias: Tensor,
    norm: nn.LayerNorm,
    rate: float,
    key: Tensor | None,
    stream: int,
) -> Tensor:
    """``norm(hidden + dropout(values + bias))``; no dropout without a key."""
    if key is not None and rate > 0 and kernels.usable(values):
        from brio_core.kernels.dropout_norm import DropoutNorm

        seed = fold_in(key, stream + 1)
        return DropoutNorm.apply(hidden, values, bias, norm.weight, norm.bias, seed, rate, norm.eps)
    values = values + bias
    return norm(hidden + (values if key is None else dropout(values, rate, key, stream)))
