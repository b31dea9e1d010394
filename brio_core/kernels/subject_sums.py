"""Sums over subjects of what two tensors give, entry by entry; both are read once.

``x * mask`` has such a sum for the gradient of its mask, and a reconstruction for its error.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused

ROWS, COLUMNS = 8, 128
BLOCK = 1024


@triton.jit
def _tanh(value):
    return 2.0 * tl.sigmoid(2.0 * value) - 1.0


@triton.jit
def _sums(
    left, right, out, batch, size, ERRORS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Sums of products, or with ``ERRORS`` of squared differences of both tanh."""
    fold = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, batch, ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < batch)[:, None] & (column < size)[None, :]
        offset = (fold * batch + row[:, None]) * size + column[None, :]
        first = tl.load(left + offset, mask=inside, other=0.0)
        second = tl.load(right + offset, mask=inside, other=0.0)
        if ERRORS:
            error = _tanh(first) - _tanh(second)
            total += error * error
        else:
            total += first * second
    tl.store(out + fold * size + column, tl.sum(total, 0), mask=column < size)


@triton.jit
def _slopes(left, right, grad, out, batch, size, BLOCK: tl.constexpr):
    """Gradients of the squared errors with respect to ``left``."""
    subject = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    offset = subject * size + column
    first = _tanh(tl.load(left + offset, mask=inside, other=0.0))
    error = first - _tanh(tl.load(right + offset, mask=inside, other=0.0))
    above = tl.load(grad + subject // batch * size + column, mask=inside, other=0.0)
    tl.store(out + offset, 2.0 * above * error * (1.0 - first * first), mask=inside)


def _over_subjects(left: Tensor, right: Tensor, errors: bool) -> Tensor:
    """From two tensors (*folds, B, P, P) to (*folds, P, P)."""
    batch, size = left.shape[-3], left.shape[-2] * left.shape[-1]
    out = left.new_empty(*left.shape[:-3], *left.shape[-2:])
    _sums[(left.numel() // (batch * size), triton.cdiv(size, COLUMNS))](
        left, right, out, batch, size, ERRORS=errors, ROWS=ROWS, COLUMNS=COLUMNS
    )
    return out


class Masked(Fused):
    """A mask (*folds, P, P) times values (*folds, B, P, P), which are data."""

    @staticmethod
    def run(mask, values):
        return values * mask.unsqueeze(-3)

    @staticmethod
    def keep(inputs, output):
        return inputs[1:]

    @staticmethod
    def slopes(grad, values):
        return _over_subjects(values, grad, errors=False)


class TanhErrors(Fused):
    """``sum_b (tanh(left) - tanh(right))^2``, (*folds, B, P, P) to (*folds, P, P).

    What is on the right is data.
    """

    @staticmethod
    def run(left, right):
        return _over_subjects(left, right, errors=True)

    @staticmethod
    def slopes(grad, left, right):
        batch, size = left.shape[-3], left.shape[-2] * left.shape[-1]
        out = torch.empty_like(left)
        _slopes[(left.numel() // size, triton.cdiv(size, BLOCK))](
            left, right, grad, out, batch, size, BLOCK=BLOCK
        )
        return out
