"""``LayerNorm(hidden + dropout(values + bias))`` in one pass each way."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.dropout_layers import SUMMED, TILE, factors
from brio_core.kernels.functions import Fused, row_tile

# Widths are known when kernels are compiled: only rows whose beginning is known to be aligned are
# read four numbers at a time. More warps would have to wait for each other in every row.
WARPS = 2


@triton.jit
def _standardised(
    hidden, values, addend, keys, row, column, rows, width, fold, rate, eps, DROP: tl.constexpr
):
    """Standardised rows, their inverse deviation, and what dropout multiplies with."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    offset = fold.to(tl.int64) * rows * width + place
    kept = factors(place, keys, fold, rate, DROP)
    value = tl.load(values + offset, mask=inside, other=0.0) + addend[None, :]
    value = tl.load(hidden + offset, mask=inside, other=0.0) + value * kept
    mean = tl.sum(tl.where(inside, value, 0.0), 1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    return centred * inverse[:, None], inverse, kept, offset, inside


@triton.jit
def _norm(
    hidden, values, bias, weight, shift, keys, out, rows, width: tl.constexpr, rate, eps,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    fold, column = tl.program_id(1), tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    own = fold * width + column
    addend = tl.load(bias + own, mask=column < width, other=0.0)
    unit, _, _, offset, inside = _standardised(
        hidden, values, addend, keys, row, column, rows, width, fold, rate, eps, DROP
    )
    result = unit * tl.load(weight + own, mask=column < width, other=0.0)[None, :]
    result += tl.load(shift + own, mask=column < width, other=0.0)[None, :]
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _norm_back(
    hidden, values, bias, weight, keys, grad, to_hidden, to_values, to_bias, to_weight, to_shift,
    rows, width: tl.constexpr, rate, eps, DROP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    fold, part, column = tl.program_id(1), tl.program_id(0), tl.arange(0, COLUMNS)
    own = fold * width + column
    addend = tl.load(bias + own, mask=column < width, other=0.0)
    scale = tl.load(weight + own, mask=column < width, other=0.0)[None, :]
    bias_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    weight_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    shift_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        unit, inverse, kept, offset, inside = _standardised(
            hidden, values, addend, keys, row, column, rows, width, fold, rate, eps, DROP
        )
        # Zero in the padding, so that padded rows add nothing to the sums.
        above = tl.load(grad + offset, mask=inside, other=0.0)
        weight_sum += above * unit
        shift_sum += above
        above = above * scale
        mean = (tl.sum(above, 1) / width)[:, None]
        slope = (tl.sum(above * unit, 1) / width)[:, None]
        through = tl.where(inside, (above - mean - unit * slope) * inverse[:, None], 0.0)
        tl.store(to_hidden + offset, through, mask=inside)
        if DROP:
            tl.store(to_values + offset, through * kept, mask=inside)
        bias_sum += through * kept
    target = (fold * tl.num_programs(0) + part) * width + column
    tl.store(to_bias + target, tl.sum(bias_sum, 0), mask=column < width)
    tl.store(to_weight + target, tl.sum(weight_sum, 0), mask=column < width)
    tl.store(to_shift + target, tl.sum(shift_sum, 0), mask=column < width)


def _sizes(hidden: Tensor, keys: Tensor) -> tuple[int, int, int, dict[str, int]]:
    """Folds, rows per fold, width, and the size of a tile."""
    width, folds = hidden.shape[-1], keys.numel()
    return folds, hidden.numel() // (folds * width), width, row_tile(width, TILE)


class DropoutNorm(Fused):
    """Nodes (*folds, ..., D), bias, weight and shift (*folds, D), keys (*folds) with a stream."""

    @staticmethod
    def run(hidden, values, bias, weight, shift, keys, rate, eps):
        folds, rows, width, tile = _sizes(hidden, keys)
        out = torch.empty_like(hidden)
        _norm[(triton.cdiv(rows, tile["ROWS"]), folds)](
            hidden, values, bias, weight, shift, keys, out, rows, width, rate, eps,
            DROP=rate > 0, num_warps=WARPS, **tile,
        )  # fmt: skip
        return out

    @staticmethod
    def keep(inputs, output):
        hidden, values, bias, weight, _, keys, *options = inputs
        return hidden, values, bias, weight, keys, *options

    @classmethod
    def backward(cls, ctx, *grads):
        to_hidden, *others = super().backward(ctx, *grads)
        # Without dropout both sides of the sum have one gradient, which is there once.
        return (to_hidden, *others) if ctx.options[0] else (to_hidden, to_hidden, *others[:-1])

    @staticmethod
    def slopes(grad, hidden, values, bias, weight, keys, rate, eps):
        folds, rows, width, tile = _sizes(hidden, keys)
        tile["ROUNDS"] = max(1, SUMMED // tile["ROWS"])
        parts = triton.cdiv(rows, tile["ROWS"] * tile["ROUNDS"])
        slopes = [torch.empty_like(hidden) for _ in range(2 if rate > 0 else 1)]
        sums = hidden.new_empty(3, folds, parts, width)
        _norm_back[(parts, folds)](
            hidden, values, bias, weight, keys, grad, slopes[0], slopes[-1], *sums,
            rows, width, rate, eps, DROP=rate > 0, num_warps=WARPS, **tile,
        )  # fmt: skip
        # Summing the parts in a fixed order keeps the result the same in every run.
        return *slopes, *(part.sum(1).view_as(weight) for part in sums)
