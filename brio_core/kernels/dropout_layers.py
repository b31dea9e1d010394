"""Ends of layers with dropout, in one pass each way.

``dropout(relu(values + bias))``, whose output tells where a gradient passes, and
``LayerNorm(hidden + dropout(values + bias))``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2, row_tile
from brio_core.kernels.uniform import keeps

# Numbers in a tile; in the backward pass of the ReLU, its widest row; and how often a program
# moves on.
TILE = 1024
COLUMNS = 256
ROUNDS = 32


@triton.jit
def _relu(values, bias, keys, out, count, width, rate, BLOCK: tl.constexpr):
    fold = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    offset = fold.to(tl.int64) * count + place
    value = tl.load(values + offset, mask=inside, other=0.0)
    value += tl.load(bias + fold * width + place % width, mask=inside, other=0.0)
    kept = keeps(place, tl.load(keys + fold).to(tl.uint32), rate)
    result = tl.where(kept & (value > 0), value / (1.0 - rate), 0.0)
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _relu_back(
    out, grad, to_values, to_bias, rows, width, rate,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    part, fold = tl.program_id(0), tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        offset = (fold * rows + row[:, None]) * width + column[None, :]
        passes = tl.load(out + offset, mask=inside, other=0.0) > 0
        above = tl.load(grad + offset, mask=inside, other=0.0)
        slope = tl.where(passes, above / (1.0 - rate), 0.0)
        tl.store(to_values + offset, slope, mask=inside)
        total += slope
    target = (fold * tl.num_programs(0) + part) * width + column
    tl.store(to_bias + target, tl.sum(total, 0), mask=column < width)


class ReluDropout(Fused):
    """Values (*folds, ..., D), bias (*folds, D), keys (*folds) with their stream folded in."""

    @staticmethod
    def run(values, bias, keys, rate):
        out = torch.empty_like(values)
        folds = keys.numel()
        count = values.numel() // folds
        _relu[(triton.cdiv(count, TILE), folds)](
            values, bias, keys, out, count, bias.shape[-1], rate, BLOCK=TILE
        )
        return out

    @staticmethod
    def keep(inputs, output):
        _, bias, _, rate = inputs
        return output, bias, rate

    @staticmethod
    def slopes(grad, out, bias, rate):
        width = bias.shape[-1]
        folds = bias.numel() // width
        rows = out.numel() // bias.numel()
        columns = min(COLUMNS, power_of_2(width))
        tile = {"ROWS": TILE // columns, "COLUMNS": columns, "ROUNDS": ROUNDS}
        parts = triton.cdiv(rows, tile["ROWS"] * ROUNDS)
        slopes, sums = torch.empty_like(out), out.new_empty(folds, parts, width)
        _relu_back[(parts, triton.cdiv(width, columns), folds)](
            out, grad, slopes, sums, rows, width, rate, **tile
        )
        # Summing the parts in a fixed order keeps the result the same in every run.
        return slopes, sums.sum(1).view_as(bias)


@triton.jit
def _standardised(hidden, values, addend, key, row, column, rows, width, fold, rate, eps):
    """Standardised rows, their inverse deviation, and what dropout multiplies with."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    offset = fold.to(tl.int64) * rows * width + place
    kept = tl.where(keeps(place, key, rate), 1.0 / (1.0 - rate), 0.0)
    value = tl.load(values + offset, mask=inside, other=0.0) + addend[None, :]
    value = tl.load(hidden + offset, mask=inside, other=0.0) + value * kept
    mean = tl.sum(tl.where(inside, value, 0.0), 1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    return centred * inverse[:, None], inverse, kept, offset, inside


@triton.jit
def _norm(
    hidden, values, bias, weight, shift, keys, out, rows, width, rate, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    fold, column = tl.program_id(1), tl.arange(0, COLUMNS)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    key = tl.load(keys + fold).to(tl.uint32)
    own = fold * width + column
    addend = tl.load(bias + own, mask=column < width, other=0.0)
    unit, _, _, offset, inside = _standardised(
        hidden, values, addend, key, row, column, rows, width, fold, rate, eps
    )
    result = unit * tl.load(weight + own, mask=column < width, other=0.0)[None, :]
    result += tl.load(shift + own, mask=column < width, other=0.0)[None, :]
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _norm_back(
    hidden, values, bias, weight, keys, grad, to_hidden, to_values, to_bias, to_weight, to_shift,
    rows, width, rate, eps,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    fold, part, column = tl.program_id(1), tl.program_id(0), tl.arange(0, COLUMNS)
    key = tl.load(keys + fold).to(tl.uint32)
    own = fold * width + column
    addend = tl.load(bias + own, mask=column < width, other=0.0)
    scale = tl.load(weight + own, mask=column < width, other=0.0)[None, :]
    bias_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    weight_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    shift_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        unit, inverse, kept, offset, inside = _standardised(
            hidden, values, addend, key, row, column, rows, width, fold, rate, eps
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
            hidden, values, bias, weight, shift, keys, out, rows, width, rate, eps, **tile
        )
        return out

    @staticmethod
    def keep(inputs, output):
        hidden, values, bias, weight, _, keys, *options = inputs
        return hidden, values, bias, weight, keys, *options

    @staticmethod
    def slopes(grad, hidden, values, bias, weight, keys, rate, eps):
        folds, rows, width, tile = _sizes(hidden, keys)
        parts = triton.cdiv(rows, tile["ROWS"] * ROUNDS)
        to_hidden, to_values = torch.empty_like(hidden), torch.empty_like(hidden)
        sums = hidden.new_empty(3, folds, parts, width)
        _norm_back[(parts, folds)](
            hidden, values, bias, weight, keys, grad, to_hidden, to_values, *sums,
            rows, width, rate, eps, ROUNDS=ROUNDS, **tile,
        )  # fmt: skip
        # Summing the parts in a fixed order keeps the result the same in every run.
        return to_hidden, to_values, *(part.sum(1).view_as(weight) for part in sums)
