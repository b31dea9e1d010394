"""Ends of layers on the nodes of many folds or experts; channels are the last axis.

``dropout(relu(BatchNorm(x)))``, in two passes each way, where the ReLU may be left out. Dropout
draws the numbers of :func:`randomness.uniform`, and draws them again on the way back instead of
keeping them. And ``relu(c_i h_i + m_i + b)``: a node's own features, its neighbours' messages and
a bias.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.uniform import draw

ROWS = 32
ROUNDS = 16
# Channels of a tile: wider layers are cut into tiles, for more would not fit into registers.
# Their number d is known when kernels are compiled: rows whose beginning is known to be aligned are
# read four numbers at a time.
WIDTH = 64


@triton.jit
def _columns(D: tl.constexpr):
    """The channels of this program's tile."""
    return tl.program_id(2) * D + tl.arange(0, D)


@triton.jit
def _moments(
    values, shift, sums, squares, rows, d: tl.constexpr,
    ROWS: tl.constexpr, ROUNDS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Sums of ``x - shift`` and its square over some rows of a group."""
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), _columns(D)
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
def _normed(
    values, scale, shift, keys, out, groups_per_fold, rows, d: tl.constexpr, probability,
    DROP: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), _columns(D)
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
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), _columns(D)
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
def _normed_back(
    values, grad, mean, inverse, scale, shift, keys, means, slopes, out,
    groups_per_fold, rows, d: tl.constexpr, probability,
    DROP: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), _columns(D)
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit, above, factor, here, offset = _through(
        values, grad, mean, inverse, scale, shift, key, group, groups_per_fold, rows, row, d,
        column, probability, DROP, RELU,
    )  # fmt: skip
    above -= tl.load(means + group * d + column, mask=column < d, other=0.0)[None, :]
    above -= unit * tl.load(slopes + group * d + column, mask=column < d, other=0.0)[None, :]
    tl.store(out + offset, above * factor, mask=here)


def _sizes(values: Tensor, weight: Tensor) -> tuple[int, int, int, int, int, dict[str, int]]:
    """Groups, rows per group, channels; parts and tiles of the sums over rows; a tile's size."""
    d = weight.shape[-1]
    groups = weight.numel() // d
    rows = values.numel() // (groups * d)
    tile = {"ROWS": ROWS, "D": min(WIDTH, power_of_2(d))}
    return groups, rows, d, triton.cdiv(rows, ROWS * ROUNDS), triton.cdiv(d, tile["D"]), tile


class NormRelu(Fused):
    """Values (*G, ..., D), weight and bias (*G, D), keys (*F) where F leads G.

    Gives the result, and mean and biased variance (*G, D), which are constants.
    """

    @staticmethod
    def run(values, weight, bias, keys, probability, epsilon, relu):
        groups, rows, d, parts, tiles, tile = _sizes(values, weight)
        flat = values.view(groups, rows, d)
        # Distances from any one row lose nothing to cancellation.
        shift = flat[:, 0].contiguous()
        sums, squares = flat.new_empty(2, groups, parts, d)
        _moments[(groups, parts, tiles)](flat, shift, sums, squares, rows, d, ROUNDS=ROUNDS, **tile)
        away = sums.sum(1) / rows
        mean = (shift + away).view_as(weight)
        variance = (squares.sum(1) / rows - away.square()).clamp_min(0).view_as(weight)
        scale = (weight * (variance + epsilon).rsqrt()).contiguous()
        offset = (bias - mean * scale).contiguous()
        out = torch.empty_like(values)
        _normed[(groups, triton.cdiv(rows, ROWS), tiles)](
            values, scale, offset, keys, out, groups // keys.numel(), rows, d, probability,
            DROP=probability > 0, RELU=relu, **tile,
        )  # fmt: skip
        return out, mean, variance

    @staticmethod
    def keep(inputs, output):
        values, weight, bias, keys, *options = inputs
        return values, weight, bias, keys, *output[1:], *options

    @staticmethod
    def slopes(grad, values, weight, bias, keys, mean, variance, probability, epsilon, relu):
        groups, rows, d, parts, tiles, tile = _sizes(values, weight)
        inverse = (variance + epsilon).rsqrt().contiguous()
        scale = (weight * inverse).contiguous()
        shift = (bias - mean * scale).contiguous()
        sums, products = values.new_empty(2, groups, parts, d)
        fixed = (values, grad, mean, inverse, scale, shift, keys)
        sizes = (groups // keys.numel(), rows, d, probability)
        tile |= {"DROP": probability > 0, "RELU": relu}
        _reduce[(groups, parts, tiles)](*fixed, sums, products, *sizes, ROUNDS=ROUNDS, **tile)
        sums, products = sums.sum(1), products.sum(1)
        out = torch.empty_like(values)
        _normed_back[(groups, triton.cdiv(rows, ROWS), tiles)](
            *fixed, sums / rows, products / rows, out, *sizes, **tile
        )
        return out, products.view_as(weight), sums.view_as(weight)


@triton.jit
def _centred(
    hidden, heard, centre, bias, out, rows, d: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), _columns(D)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = (row < rows)[:, None] & (column < d)[None, :]
    offset = (group * rows + row[:, None]) * d + column[None, :]
    factor = tl.load(centre + group * rows + row, mask=row < rows, other=0.0)[:, None]
    value = tl.load(hidden + offset, mask=here, other=0.0) * factor
    value += tl.load(heard + offset, mask=here, other=0.0)
    value += tl.load(bias + group * d + column, mask=column < d, other=0.0)[None, :]
    tl.store(out + offset, tl.maximum(value, 0.0), mask=here)


@triton.jit
def _centred_back(
    hidden, centre, out, grad, to_hidden, to_heard, to_centre, to_bias, rows, d: tl.constexpr,
    ROWS: tl.constexpr, ROUNDS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), _columns(D)
    # Every tile of channels has a share of its own in the gradient of a node's factor.
    to_centre += tl.program_id(2).to(tl.int64) * tl.num_programs(0) * rows
    total = tl.zeros((ROWS, D), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        here = (row < rows)[:, None] & (column < d)[None, :]
        offset = (group * rows + row[:, None]) * d + column[None, :]
        above = tl.load(grad + offset, mask=here, other=0.0)
        above = tl.where(tl.load(out + offset, mask=here, other=0.0) > 0, above, 0.0)
        tl.store(to_heard + offset, above, mask=here)
        factor = tl.load(centre + group * rows + row, mask=row < rows, other=0.0)[:, None]
        tl.store(to_hidden + offset, above * factor, mask=here)
        own = tl.load(hidden + offset, mask=here, other=0.0)
        tl.store(to_centre + group * rows + row, tl.sum(above * own, 1), mask=row < rows)
        total += above
    target = (group * tl.num_programs(1) + part) * d + column
    tl.store(to_bias + target, tl.sum(total, 0), mask=column < d)


class CentreRelu(Fused):
    """Nodes and messages (*G, ..., D), what a node's own counts (*G, ..., 1), bias (*G, D)."""

    @staticmethod
    def run(hidden, heard, centre, bias):
        groups, rows, d, _, tiles, tile = _sizes(hidden, bias)
        out = torch.empty_like(hidden)
        _centred[(groups, triton.cdiv(rows, ROWS), tiles)](
            hidden, heard, centre, bias, out, rows, d, **tile
        )
        return out

    @staticmethod
    def keep(inputs, output):
        hidden, _, centre, bias = inputs
        return hidden, centre, bias, output

    @staticmethod
    def slopes(grad, hidden, centre, bias, out):
        groups, rows, d, parts, tiles, tile = _sizes(hidden, bias)
        to_hidden, to_heard = torch.empty_like(hidden), torch.empty_like(hidden)
        to_centre = centre.new_empty(tiles, *centre.shape)
        to_bias = hidden.new_empty(groups, parts, d)
        _centred_back[(groups, parts, tiles)](
            hidden, centre, out, grad, to_hidden, to_heard, to_centre, to_bias, rows, d,
            ROUNDS=ROUNDS, **tile,
        )  # fmt: skip
        return to_hidden, to_heard, to_centre.sum(0), to_bias.sum(1).view_as(bias)
