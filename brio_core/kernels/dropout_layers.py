"""Ends of layers, with or without dropout, in one pass each way.

``dropout(relu(values + bias))``, whose output tells where a gradient passes, and
``gelu(dropout(values + bias))``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.uniform import keeps

# Numbers in a tile; the widest row of one that needs no whole rows; and rows that a program sums.
TILE = 1024
COLUMNS = 256
SUMMED = 128


@triton.jit
def factors(place, keys, fold, rate, DROP: tl.constexpr):
    """What dropout multiplies with."""
    if DROP:
        key = tl.load(keys + fold).to(tl.uint32)
        kept = tl.where(keeps(place, key, rate), 1.0 / (1.0 - rate), 0.0)
    else:
        kept = 1.0
    return kept


@triton.jit
def _normal(value):
    """The distribution of a standard normal variable."""
    return 0.5 * (1 + tl.erf(value * 0.7071067811865476))


@triton.jit
def _activated(
    values, bias, keys, out, count, width, rate,
    KIND: tl.constexpr, DROP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    fold = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    offset = fold.to(tl.int64) * count + place
    value = tl.load(values + offset, mask=inside, other=0.0)
    value += tl.load(bias + fold * width + place % width, mask=inside, other=0.0)
    kept = factors(place, keys, fold, rate, DROP)
    if KIND == "gelu":
        value *= kept
        result = value * _normal(value)
    else:
        result = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL) * kept
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _activated_back(
    source, bias, keys, grad, to_values, to_bias, rows, width, rate,
    KIND: tl.constexpr, DROP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """``source`` is the output of a ReLU, and of a GELU the values."""
    part, fold = tl.program_id(0), tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        place = row[:, None] * width + column[None, :]
        offset = fold * rows * width + place
        value = tl.load(source + offset, mask=inside, other=0.0)
        slope = tl.load(grad + offset, mask=inside, other=0.0)
        if KIND == "relu":
            slope = tl.where(value > 0, slope / (1.0 - rate), 0.0)
        else:
            value += tl.load(bias + fold * width + column, mask=column < width, other=0.0)[None, :]
            kept = factors(place, keys, fold, rate, DROP)
            value *= kept
            density = tl.exp(-0.5 * value * value) * 0.3989422804014327
            slope *= (_normal(value) + value * density) * kept
        tl.store(to_values + offset, slope, mask=inside)
        total += slope
    target = (fold * tl.num_programs(0) + part) * width + column
    tl.store(to_bias + target, tl.sum(total, 0), mask=column < width)


def _columns(values: Tensor, bias: Tensor) -> tuple[tuple[int, ...], Tensor, dict[str, int]]:
    """A grid for all rows, places for the sums of its programs, and the tile of one."""
    width = bias.shape[-1]
    folds, rows = bias.numel() // width, values.numel() // bias.numel()
    columns = min(COLUMNS, power_of_2(width))
    tile = {"ROWS": TILE // columns, "COLUMNS": columns}
    tile["ROUNDS"] = max(1, SUMMED // tile["ROWS"])
    parts = triton.cdiv(rows, tile["ROWS"] * tile["ROUNDS"])
    grid = (parts, triton.cdiv(width, columns), folds)
    return grid, values.new_empty(folds, parts, width), tile


class ReluDropout(Fused):
    """Values (*folds, ..., D), bias (*folds, D), keys (*folds) with their stream folded in."""

    KIND = "relu"

    @classmethod
    def run(cls, values, bias, keys, rate):
        out = torch.empty_like(values)
        folds = keys.numel()
        count = values.numel() // folds
        _activated[(triton.cdiv(count, TILE), folds)](
            values, bias, keys, out, count, bias.shape[-1], rate,
            KIND=cls.KIND, DROP=rate > 0, BLOCK=TILE,
        )  # fmt: skip
        return out

    @classmethod
    def keep(cls, inputs, output):
        values, *others = inputs
        return output if cls.KIND == "relu" else values, *others, cls.KIND

    @staticmethod
    def slopes(grad, source, bias, keys, rate, kind):
        grid, sums, tile = _columns(source, bias)
        slopes = torch.empty_like(source)
        _activated_back[grid](
            source, bias, keys, grad, slopes, sums, source.numel() // bias.numel(), bias.shape[-1],
            rate, KIND=kind, DROP=rate > 0, **tile,
        )  # fmt: skip
        # Summing the parts in a fixed order keeps the result the same in every run.
        return slopes, sums.sum(1).view_as(bias)


class DropoutGelu(ReluDropout):
    """The same for a GELU behind the dropout."""

    KIND = "gelu"
