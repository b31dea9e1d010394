"""``LayerNorm(hidden + dropout(values + bias))`` in one pass forward and one backward."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.uniform import draw

# Numbers that one program holds, and how often it moves on in the backward pass.
TILE = 1024
ROUNDS = 32


@triton.jit
def _standardised(hidden, values, addend, key, row, column, rows, width, fold, rate, eps):
    """Standardised rows, their inverse deviation, and what dropout multiplies with."""
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    offset = fold.to(tl.int64) * rows * width + place
    kept = tl.where(draw(place, key) >= rate, 1.0 / (1.0 - rate), 0.0)
    value = tl.load(values + offset, mask=inside, other=0.0) + addend[None, :]
    value = tl.load(hidden + offset, mask=inside, other=0.0) + value * kept
    mean = tl.sum(tl.where(inside, value, 0.0), 1) / width
    centred = tl.where(inside, value - mean[:, None], 0.0)
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / width + eps)
    return centred * inverse[:, None], inverse, kept, offset, inside


@triton.jit
def _forward(
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
def _backward(
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
    columns = triton.next_power_of_2(width)
    tile = {"ROWS": max(1, TILE // columns), "COLUMNS": columns}
    return folds, hidden.numel() // (folds * width), width, tile


class DropoutNorm(torch.autograd.Function):
    """Nodes (*folds, ..., D), bias, weight and shift (*folds, D), keys (*folds) with a stream."""

    @staticmethod
    def forward(hidden, values, bias, weight, shift, keys, rate, eps):
        tensors = [part.contiguous() for part in (hidden, values, bias, weight, shift, keys)]
        folds, rows, width, tile = _sizes(hidden, keys)
        out = torch.empty_like(tensors[0])
        _forward[(triton.cdiv(rows, tile["ROWS"]), folds)](
            *tensors, out, rows, width, rate, eps, **tile
        )
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        hidden, values, bias, weight, _, keys, ctx.rate, ctx.eps = inputs
        ctx.save_for_backward(hidden, values, bias, weight, keys)

    @staticmethod
    def backward(ctx, grad):
        slopes = _DropoutNormBackward.apply(*ctx.saved_tensors, grad, ctx.rate, ctx.eps)
        return *slopes, None, None, None

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return DropoutNorm.apply(*to_front(info, in_dims, inputs[:-2]), *inputs[-2:]), 0


class _DropoutNormBackward(Derivative):
    @staticmethod
    def forward(hidden, values, bias, weight, keys, grad, rate, eps):
        tensors = [part.contiguous() for part in (hidden, values, bias, weight, keys, grad)]
        folds, rows, width, tile = _sizes(hidden, keys)
        parts = triton.cdiv(rows, tile["ROWS"] * ROUNDS)
        to_hidden, to_values = torch.empty_like(tensors[0]), torch.empty_like(tensors[0])
        sums = hidden.new_empty(3, folds, parts, width)
        _backward[(parts, folds)](
            *tensors, to_hidden, to_values, *sums, rows, width, rate, eps, ROUNDS=ROUNDS, **tile
        )
        # Summing the parts in a fixed order keeps the result the same in every run.
        return to_hidden, to_values, *(part.sum(1).view_as(weight) for part in sums)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        front = to_front(info, in_dims, inputs[:-2])
        return _DropoutNormBackward.apply(*front, *inputs[-2:]), (0,) * 5
