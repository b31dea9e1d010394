"""Softmax over short rows and dropout behind it, in one pass forward and one backward.

Dropout draws the numbers of :func:`randomness.uniform`; the gradient is computed from
the scores alone, so that neither weights nor masks are kept.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.uniform import draw

# Numbers that one program holds.
TILE = 1024


@triton.jit
def _weights(scores, key, offset, place, inside, rate):
    """Softmax of some rows, and what dropout multiplies it with."""
    value = tl.load(scores + offset, mask=inside, other=-1.0e30)
    power = tl.exp(value - tl.max(value, 1)[:, None])
    weight = power / tl.sum(power, 1)[:, None]
    kept = tl.where(draw(place, key) >= rate, 1.0 / (1.0 - rate), 0.0)
    return weight, kept


@triton.jit
def forward_kernel(
    scores, keys, out, rows, width, rate, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    fold = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    offset = fold.to(tl.int64) * rows * width + place
    key = tl.load(keys + fold).to(tl.uint32)
    weight, kept = _weights(scores, key, offset, place, inside, rate)
    tl.store(out + offset, weight * kept, mask=inside)


@triton.jit
def backward_kernel(
    scores, keys, grad, out, rows, width, rate, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    fold = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    offset = fold.to(tl.int64) * rows * width + place
    key = tl.load(keys + fold).to(tl.uint32)
    weight, kept = _weights(scores, key, offset, place, inside, rate)
    through = tl.load(grad + offset, mask=inside, other=0.0) * kept
    inner = tl.sum(weight * through, 1)
    tl.store(out + offset, weight * (through - inner[:, None]), mask=inside)


def launch(kernel, scores: Tensor, keys: Tensor, rate: float, *tensors: Tensor) -> None:
    """Run for all rows of contiguous scores, whose first axes are those of the keys."""
    width, folds = scores.shape[-1], keys.numel()
    rows = scores.numel() // (folds * width)
    columns = triton.next_power_of_2(width)
    height = max(1, TILE // columns)
    kernel[(triton.cdiv(rows, height), folds)](
        scores, keys, *tensors, rows, width, rate, ROWS=height, COLUMNS=columns
    )


class SoftmaxDropout(torch.autograd.Function):
    """Scores (*folds, ..., P) and keys (*folds) with their stream folded in."""

    @staticmethod
    def forward(scores, keys, rate):
        scores, keys = scores.contiguous(), keys.contiguous()
        out = torch.empty_like(scores)
        launch(forward_kernel, scores, keys, rate, out)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        scores, keys, ctx.rate = inputs
        ctx.save_for_backward(scores, keys)

    @staticmethod
    def backward(ctx, grad):
        return _SoftmaxDropoutBackward.apply(*ctx.saved_tensors, grad, ctx.rate), None, None

    @staticmethod
    def vmap(info, in_dims, scores, keys, rate):
        return SoftmaxDropout.apply(*to_front(info, in_dims, (scores, keys)), rate), 0


class _SoftmaxDropoutBackward(Derivative):
    @staticmethod
    def forward(scores, keys, grad, rate):
        scores, keys, grad = scores.contiguous(), keys.contiguous(), grad.contiguous()
        out = torch.empty_like(scores)
        launch(backward_kernel, scores, keys, rate, grad, out)
        return out

    @staticmethod
    def vmap(info, in_dims, scores, keys, grad, rate):
        tensors = to_front(info, in_dims, (scores, keys, grad))
        return _SoftmaxDropoutBackward.apply(*tensors, rate), 0
