"""``dropout(relu(BatchNorm(x)))`` for many folds or experts, in two passes each way.

The ReLU may be left out. Channels are the last axis. Dropout draws the numbers of
:func:`randomness.uniform`, and draws them again on the way back instead of keeping them.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.uniform import draw

ROWS = 32
ROUNDS = 16
# Channels of a tile: wider layers are cut into tiles, for more would not fit into registers.
# Their number d is known when kernels are compiled: rows whose beginning is known to be aligned are
# read four numbers at a time.
WIDTH = 64


@triton.jit
def columns(D: tl.constexpr):
    """The channels of this program's tile."""
    return tl.program_id(2) * D + tl.arange(0, D)


@triton.jit
def _moments(
    values, shift, sums, squares, rows, d: tl.constexpr,
    ROWS: tl.constexpr, ROUNDS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Sums of ``x - shift`` and its square over some rows of a group."""
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), columns(D)
    inside = column < d
    origin = tl.load(shift + group * d + column, mask=inside, other=0.0)[None, :]
    total = tl.zeros((ROWS, D), tl.float32)
    square = tl.zeros((ROWS, D), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        here = (row < rows)[:, None] & inside[None, :]
        offset = (group * rows + row[:, None]) * d + column[None, :]
        value = tl.where(here, tl.load(values + offset, mask=here, other=0.0) - origin, 0.0)
        total += value
        square += value * value
    target = (group * tl.num_programs(1) + part) * d + column
    tl.store(sums + target, tl.sum(total, 0), mask=inside)
    tl.store(squares + target, tl.sum(square, 0), mask=inside)


@triton.jit
def _kept(key, group, groups_per_fold, rows, row, d, column, probability, DROP: tl.constexpr):
    """What dropout multiplies with."""
    if DROP:
        place = (group % groups_per_fold * rows + row[:, None]) * d + column[None, :]
        kept = tl.where(draw(place, key) >= probability, 1.0 / (1.0 - probability), 0.0)
    else:
        kept = 1.0
    return kept


@triton.jit
def _forward(
    values, scale, shift, keys, out, groups_per_fold, rows, d: tl.constexpr, probability,
    DROP: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), columns(D)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = (row < rows)[:, None] & (column < d)[None, :]
    offset = (group * rows + row[:, None]) * d + column[None, :]
    value = tl.load(values + offset, mask=here, other=0.0)
    value *= tl.load(scale + group * d + column, mask=column < d, other=0.0)[None, :]
    value += tl.load(shift + group * d + column, mask=column < d, other=0.0)[None, :]
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    kept = _kept(key, group, groups_per_fold, rows, row, d, column, probability, DROP)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + offset, value * kept, mask=here)


@triton.jit
def _through(
    values, grad, mean, inverse, scale, shift, key, group, groups_per_fold, rows, row, d, column,
    probability, DROP: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Standardised values, and the gradient before the ReLU."""
    here = (row < rows)[:, None] & (column < d)[None, :]
    offset = (group * rows + row[:, None]) * d + column[None, :]
    value = tl.load(values + offset, mask=here, other=0.0)
    above = tl.load(grad + offset, mask=here, other=0.0)
    place = group * d + column
    slope = tl.load(scale + place, mask=column < d, other=0.0)[None, :]
    start = tl.load(shift + place, mask=column < d, other=0.0)[None, :]
    centre = tl.load(mean + place, mask=column < d, other=0.0)[None, :]
    factor = tl.load(inverse + place, mask=column < d, other=0.0)[None, :]
    kept = _kept(key, group, groups_per_fold, rows, row, d, column, probability, DROP)
    above *= kept
    if RELU:
        above = tl.where(value * slope + start > 0, above, 0.0)
    return (value - centre) * factor, above, slope, here, offset


@triton.jit
def _reduce(
    values, grad, mean, inverse, scale, shift, keys, sums, products,
    groups_per_fold, rows, d: tl.constexpr, probability,
    DROP: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, ROUNDS: tl.constexpr,
    D: tl.constexpr,
):  # fmt: skip
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), columns(D)
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    total = tl.zeros((ROWS, D), tl.float32)
    product = tl.zeros((ROWS, D), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        unit, above, _, _, _ = _through(
            values, grad, mean, inverse, scale, shift, key, group, groups_per_fold, rows, row, d,
            column, probability, DROP, RELU,
        )  # fmt: skip
        total += above
        product += above * unit
    target = (group * tl.num_programs(1) + part) * d + column
    tl.store(sums + target, tl.sum(total, 0), mask=column < d)
    tl.store(products + target, tl.sum(product, 0), mask=column < d)


@triton.jit
def _backward(
    values, grad, mean, inverse, scale, shift, keys, means, slopes, out,
    groups_per_fold, rows, d: tl.constexpr, probability,
    DROP: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), columns(D)
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit, above, factor, here, offset = _through(
        values, grad, mean, inverse, scale, shift, key, group, groups_per_fold, rows, row, d,
        column, probability, DROP, RELU,
    )  # fmt: skip
    above -= tl.load(means + group * d + column, mask=column < d, other=0.0)[None, :]
    above -= unit * tl.load(slopes + group * d + column, mask=column < d, other=0.0)[None, :]
    tl.store(out + offset, above * factor, mask=here)


def _sizes(values: Tensor, weight: Tensor, keys: Tensor) -> tuple[int, int, int, int, dict]:
    """Groups, groups per fold, rows per group, channels, and the size of a tile."""
    d = weight.shape[-1]
    groups = weight.numel() // d
    tile = {"ROWS": ROWS, "D": min(WIDTH, triton.next_power_of_2(d))}
    return groups, groups // keys.numel(), values.numel() // (groups * d), d, tile


class NormRelu(torch.autograd.Function):
    """Values (*G, ..., D), weight and bias (*G, D), keys (*F) where F leads G.

    Gives the result, and mean and biased variance (*G, D), which are constants.
    """

    @staticmethod
    def forward(values, weight, bias, keys, probability, epsilon, relu):
        values, keys = values.contiguous(), keys.contiguous()
        groups, per_fold, rows, d, tile = _sizes(values, weight, keys)
        flat = values.view(groups, rows, d)
        # Distances from any one row lose nothing to cancellation.
        shift = flat[:, 0].contiguous()
        parts, tiles = triton.cdiv(rows, ROWS * ROUNDS), triton.cdiv(d, tile["D"])
        sums, squares = flat.new_empty(2, groups, parts, d)
        _moments[(groups, parts, tiles)](flat, shift, sums, squares, rows, d, ROUNDS=ROUNDS, **tile)
        away = sums.sum(1) / rows
        mean = (shift + away).view_as(weight)
        variance = (squares.sum(1) / rows - away.square()).clamp_min(0).view_as(weight)
        scale = (weight * (variance + epsilon).rsqrt()).contiguous()
        offset = (bias - mean * scale).contiguous()
        out = torch.empty_like(values)
        _forward[(groups, triton.cdiv(rows, ROWS), tiles)](
            values, scale, offset, keys, out, per_fold, rows, d, probability,
            DROP=probability > 0, RELU=relu, **tile,
        )  # fmt: skip
        return out, mean, variance

    @staticmethod
    def setup_context(ctx, inputs, output):
        values, weight, bias, keys, *ctx.options = inputs
        _, mean, variance = output
        ctx.mark_non_differentiable(mean, variance)
        ctx.save_for_backward(values, weight, bias, keys, mean, variance)

    @staticmethod
    def backward(ctx, grad, *_):
        grads = _NormReluBackward.apply(*ctx.saved_tensors, grad, *ctx.options)
        return *grads, None, None, None, None

    @staticmethod
    def vmap(info, in_dims, *inputs):
        tensors = to_front(info, in_dims, inputs[:-3])
        return NormRelu.apply(*tensors, *inputs[-3:]), (0, 0, 0)


class _NormReluBackward(Derivative):
    @staticmethod
    def forward(values, weight, bias, keys, mean, variance, grad, probability, epsilon, relu):
        values, keys, grad = values.contiguous(), keys.contiguous(), grad.contiguous()
        groups, per_fold, rows, d, tile = _sizes(values, weight, keys)
        mean = mean.contiguous()
        inverse = (variance + epsilon).rsqrt().contiguous()
        scale = (weight * inverse).contiguous()
        shift = (bias - mean * scale).contiguous()
        parts, tiles = triton.cdiv(rows, ROWS * ROUNDS), triton.cdiv(d, tile["D"])
        sums, products = values.new_empty(2, groups, parts, d)
        fixed = (values, grad, mean, inverse, scale, shift, keys)
        _reduce[(groups, parts, tiles)](
            *fixed, sums, products, per_fold, rows, d, probability,
            DROP=probability > 0, RELU=relu, ROUNDS=ROUNDS, **tile,
        )  # fmt: skip
        sums, products = sums.sum(1), products.sum(1)
        out = torch.empty_like(values)
        _backward[(groups, triton.cdiv(rows, ROWS), tiles)](
            *fixed, sums / rows, products / rows, out, per_fold, rows, d, probability,
            DROP=probability > 0, RELU=relu, **tile,
        )  # fmt: skip
        return out, products.view_as(weight), sums.view_as(weight)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        tensors = to_front(info, in_dims, inputs[:-3])
        return _NormReluBackward.apply(*tensors, *inputs[-3:]), (0, 0, 0)
