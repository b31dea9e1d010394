"""``LayerNorm(hidden + GELU(own + received))`` in one pass forward and one backward.

Rows are short (the hidden width), so a kernel that normalises one row per block leaves most of
the memory bandwidth unused, and unfused arithmetic reads and writes everything several times.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused

ROWS = 32
# The way back has more to hold, so a program takes fewer rows at once, and does so four times.
BACK = {"ROWS": 16, "ROUNDS": 4, "num_warps": 2}


@triton.jit
def _forward(
    hidden, own, received, weight, bias, out, rows, eps, D: tl.constexpr, ROWS: tl.constexpr
):
    fold, column = tl.program_id(0), tl.arange(0, D)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    offset = (fold.to(tl.int64) * rows + row[:, None]) * D + column[None, :]
    pre = tl.load(own + offset, mask=inside, other=0.0)
    pre += tl.load(received + offset, mask=inside, other=0.0)
    value = tl.load(hidden + offset, mask=inside, other=0.0)
    value += 0.5 * pre * (1 + tl.erf(pre * 0.7071067811865476))
    centred = value - (tl.sum(value, 1) / D)[:, None]
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    result = centred * inverse[:, None] * tl.load(weight + fold * D + column)[None, :]
    result += tl.load(bias + fold * D + column)[None, :]
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _backward(
    hidden, own, received, weight, grad, grad_hidden, grad_pre, grad_weight, grad_bias, rows, eps,
    largest, SUMMED: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """If SUMMED, ``own`` holds what was received too, and ROWS rows have their largest gradient."""
    fold, part, column = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    scale = tl.load(weight + fold * D + column)[None, :]
    weight_sum = tl.zeros((D,), tl.float32)
    bias_sum = tl.zeros((D,), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None]
        offset = (fold.to(tl.int64) * rows + row[:, None]) * D + column[None, :]
        pre = tl.load(own + offset, mask=inside, other=0.0)
        if not SUMMED:
            pre += tl.load(received + offset, mask=inside, other=0.0)
        normal = 0.5 * (1 + tl.erf(pre * 0.7071067811865476))
        value = tl.load(hidden + offset, mask=inside, other=0.0) + pre * normal
        centred = value - (tl.sum(value, 1) / D)[:, None]
        inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
        unit = centred * inverse[:, None]
        above = tl.load(grad + offset, mask=inside, other=0.0)
        weight_sum += tl.sum(above * unit, 0)
        bias_sum += tl.sum(above, 0)
        above = above * scale
        mean = (tl.sum(above, 1) / D)[:, None]
        slope = (tl.sum(above * unit, 1) / D)[:, None]
        through = (above - mean - unit * slope) * inverse[:, None]
        tl.store(grad_hidden + offset, through, mask=inside)
        density = tl.exp(-0.5 * pre * pre) * 0.3989422804014327
        through *= normal + pre * density
        tl.store(grad_pre + offset, through, mask=inside)
        if SUMMED:
            number = part * ROUNDS + turn
            peak = tl.max(tl.max(tl.where(inside, tl.abs(through), 0.0), 1), 0)
            tl.store(largest + fold * tl.cdiv(rows, ROWS) + number, peak, mask=number * ROWS < rows)
    target = (fold * tl.num_programs(1) + part) * D + column
    tl.store(grad_weight + target, weight_sum)
    tl.store(grad_bias + target, bias_sum)


def _sizes(hidden: Tensor, weight: Tensor) -> tuple[int, int, int]:
    """Folds, rows per fold, and width."""
    width = weight.shape[-1]
    folds = weight.numel() // width
    return folds, hidden.numel() // (folds * width), width


class ResidualNorm(Fused):
    """``hidden``, ``own``, ``received`` (*folds, ..., D); ``weight``, ``bias`` (*folds, D)."""

    @staticmethod
    def run(hidden, own, received, weight, bias, eps):
        folds, rows, width = _sizes(hidden, weight)
        out = torch.empty_like(hidden)
        _forward[(folds, triton.cdiv(rows, ROWS))](
            hidden, own, received, weight, bias, out, rows, eps, D=width, ROWS=ROWS
        )
        return out

    @staticmethod
    def keep(inputs, output):
        hidden, own, received, weight, _, eps = inputs
        return hidden, own, received, weight, eps

    @classmethod
    def backward(cls, ctx, *grads):
        to_hidden, to_sum, *others, _ = super().backward(ctx, *grads)
        return to_hidden, to_sum, to_sum, *others

    @staticmethod
    def slopes(grad, hidden, own, received, weight, eps):
        to_sum = torch.empty_like(hidden)
        to_hidden, *sums = residual_norm_slopes(grad, hidden, own, received, weight, eps, to_sum)
        return to_hidden, to_sum, *sums


def residual_norm_slopes(
    grad: Tensor,
    hidden: Tensor,
    own: Tensor,
    received: Tensor | None,
    weight: Tensor,
    eps: float,
    to_sum: Tensor,
    largest: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``hidden``, ``weight`` and ``bias``; that of the sum is written in place.

    ``own`` is the whole sum where nothing is ``received``; then the ``largest`` gradient of as many
    rows as are worked on together is written too.
    """
    folds, rows, width = _sizes(hidden, weight)
    parts = triton.cdiv(rows, BACK["ROWS"] * BACK["ROUNDS"])
    to_hidden = torch.empty_like(hidden)
    to_weight, to_bias = hidden.new_empty(2, folds, parts, width)
    _backward[(folds, parts)](
        hidden, own, own if received is None else received, weight, grad, to_hidden, to_sum,
        to_weight, to_bias, rows, eps, largest, SUMMED=received is None, D=width,
        **BACK,
    )  # fmt: skip
    # Summing the parts in a fixed order keeps the result the same in every run.
    sums = (part.sum(1).view_as(weight) for part in (to_weight, to_bias))
    return to_hidden, *sums
