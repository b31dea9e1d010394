"""``dropout(relu(BatchNorm(x)))`` on the nodes of many folds or experts.

Channels are the last axis. Two passes each way; the ReLU may be left out, and rows may be absent.
Dropout draws the numbers of :func:`randomness.uniform`, and draws them again on the way back
instead of keeping them.
"""

from functools import cached_property

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.uniform import keeps

# Numbers of a tile, and tiles of a program that sums.
TILE, ROUNDS = 2048, 16
# Channels of a tile: wider layers are cut into tiles, for more would not fit into registers.
# Their number d is known when kernels are compiled: rows whose beginning is known to be aligned are
# read four numbers at a time.
WIDTH = 64


@triton.jit
def _columns(D: tl.constexpr):
    """The channels of this program's tile."""
    return tl.program_id(2) * D + tl.arange(0, D)


@triton.jit
def _counted(present, group, rows, row, MASKED: tl.constexpr):
    """Which rows of a tile count."""
    here = row < rows
    if MASKED:
        here &= tl.load(present + group * rows + row, mask=here, other=0) > 0
    return here


@triton.jit
def _here(present, group, rows, row, d, column, MASKED: tl.constexpr):
    """Which numbers of a tile count."""
    return _counted(present, group, rows, row, MASKED)[:, None] & (column < d)[None, :]


@triton.jit
def _moments(
    values, present, shift, sums, squares, numbers, rows, d: tl.constexpr, MASKED: tl.constexpr,
    ROWS: tl.constexpr, ROUNDS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Sums of ``x - shift`` and its square over some rows of a group, and how many count."""
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), _columns(D)
    inside = column < d
    origin = tl.load(shift + group * d + column, mask=inside, other=0.0)[None, :]
    total = tl.zeros((ROWS, D), tl.float32)
    square = tl.zeros((ROWS, D), tl.float32)
    number = tl.zeros((ROWS,), tl.int32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        counts = _counted(present, group, rows, row, MASKED)
        number += counts.to(tl.int32)
        here = counts[:, None] & inside[None, :]
        offset = (group * rows + row[:, None]) * d + column[None, :]
        value = tl.where(here, tl.load(values + offset, mask=here, other=0.0) - origin, 0.0)
        total += value
        square += value * value
    place = group * tl.num_programs(1) + part
    tl.store(sums + place * d + column, tl.sum(total, 0), mask=inside)
    tl.store(squares + place * d + column, tl.sum(square, 0), mask=inside)
    if MASKED:
        # Tiles of other channels count the same.
        tl.store(numbers + place, tl.sum(number, 0))


@triton.jit
def _kept(key, group, groups_per_fold, rows, row, d, column, probability, DROP: tl.constexpr):
    """What dropout multiplies with."""
    if DROP:
        place = (group % groups_per_fold * rows + row[:, None]) * d + column[None, :]
        kept = tl.where(keeps(place, key, probability), 1.0 / (1.0 - probability), 0.0)
    else:
        kept = 1.0
    return kept


@triton.jit
def _normed(
    values, present, scale, shift, keys, out, groups_per_fold, rows, d: tl.constexpr, probability,
    MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), _columns(D)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = _here(present, group, rows, row, d, column, MASKED)
    offset = (group * rows + row[:, None]) * d + column[None, :]
    value = tl.load(values + offset, mask=here, other=0.0)
    value *= tl.load(scale + group * d + column, mask=column < d, other=0.0)[None, :]
    value += tl.load(shift + group * d + column, mask=column < d, other=0.0)[None, :]
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    kept = _kept(key, group, groups_per_fold, rows, row, d, column, probability, DROP)
    if RELU:
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    stored = (row < rows)[:, None] & (column < d)[None, :]
    tl.store(out + offset, tl.where(here, value * kept, 0.0), mask=stored)


@triton.jit
def _through(
    values, grad, present, mean, inverse, scale, shift, key, group, groups_per_fold, rows, row, d,
    column, probability, MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr,
):  # fmt: skip
    """Standardised values, and the gradient before the ReLU."""
    here = _here(present, group, rows, row, d, column, MASKED)
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
    values, grad, present, mean, inverse, scale, shift, keys, sums, products,
    groups_per_fold, rows, d: tl.constexpr, probability,
    MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr,
    ROWS: tl.constexpr, ROUNDS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), _columns(D)
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    total = tl.zeros((ROWS, D), tl.float32)
    product = tl.zeros((ROWS, D), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        unit, above, _, _, _ = _through(
            values, grad, present, mean, inverse, scale, shift, key, group, groups_per_fold, rows,
            row, d, column, probability, MASKED, DROP, RELU,
        )  # fmt: skip
        total += above
        product += above * unit
    target = (group * tl.num_programs(1) + part) * d + column
    tl.store(sums + target, tl.sum(total, 0), mask=column < d)
    tl.store(products + target, tl.sum(product, 0), mask=column < d)


@triton.jit
def _normed_back(
    values, grad, present, mean, inverse, scale, shift, keys, means, slopes, out,
    groups_per_fold, rows, d: tl.constexpr, probability,
    MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), _columns(D)
    key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit, above, factor, here, offset = _through(
        values, grad, present, mean, inverse, scale, shift, key, group, groups_per_fold, rows,
        row, d, column, probability, MASKED, DROP, RELU,
    )  # fmt: skip
    above -= tl.load(means + group * d + column, mask=column < d, other=0.0)[None, :]
    above -= unit * tl.load(slopes + group * d + column, mask=column < d, other=0.0)[None, :]
    stored = (row < rows)[:, None] & (column < d)[None, :]
    tl.store(out + offset, tl.where(here, above * factor, 0.0), mask=stored)


class Sizes:
    """Groups of rows, how many rows of each count, and the tiles of a layer."""

    def __init__(self, values: Tensor, groups: int, present: Tensor | None) -> None:
        self.d, self.groups = values.shape[-1], groups
        self.rows = values.numel() // (self.groups * self.d)
        width = min(WIDTH, power_of_2(self.d))
        rows = TILE // width
        self.parts = triton.cdiv(self.rows, rows * ROUNDS)
        self.tiles = triton.cdiv(self.d, width)
        self.grid = (self.groups, triton.cdiv(self.rows, rows), self.tiles)
        self.options = {"MASKED": present is not None, "ROWS": rows, "D": width}
        # What is not read may point anywhere.
        self.present = values if present is None else present.view(torch.uint8)

    @cached_property
    def count(self) -> int | Tensor:
        """How many rows count: of every group (G, 1), or of each."""
        if not self.options["MASKED"]:
            return self.rows
        return self.present.view(self.groups, self.rows).sum(1, keepdim=True).clamp_min(1)

    def moments(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Means and biased variances of the groups, both (G, d)."""
        # Distances from any one row lose nothing to cancellation.
        shift = values.view(self.groups, self.rows, self.d)[:, 0].float().contiguous()
        sums, squares = shift.new_empty(2, self.groups, self.parts, self.d)
        numbers = values.new_empty(self.groups, self.parts, dtype=torch.int32)
        _moments[(self.groups, self.parts, self.tiles)](
            values, self.present, shift, sums, squares, numbers, self.rows, self.d,
            ROUNDS=ROUNDS, **self.options,
        )  # fmt: skip
        if self.options["MASKED"]:
            # Counted on the way: the rows of all groups are many to sum.
            self.count = numbers.sum(1, keepdim=True).clamp_min(1)
        away = sums.sum(1) / self.count
        return shift + away, (squares.sum(1) / self.count - away.square()).clamp_min(0)


class NormRelu(Fused):
    """Values (*G, ..., D), weight and bias (*G, D), keys (*F) where F leads G.

    ``present`` (*G, rows) tells which rows count, or is None; absent ones become zero.
    Gives the result, and mean and biased variance (*G, D), which are constants.
    """

    @staticmethod
    def run(values, weight, bias, keys, present, probability, epsilon, relu):
        sizes = Sizes(values, weight.numel() // weight.shape[-1], present)
        groups, rows, d = sizes.groups, sizes.rows, sizes.d
        flat = values.view(groups, rows, d)
        mean, variance = (found.view_as(weight) for found in sizes.moments(flat))
        scale = (weight * (variance + epsilon).rsqrt()).contiguous()
        offset = (bias - mean * scale).contiguous()
        out = torch.empty_like(values)
        _normed[sizes.grid](
            values, sizes.present, scale, offset, keys, out, groups // keys.numel(), rows, d,
            probability, DROP=probability > 0, RELU=relu, **sizes.options,
        )  # fmt: skip
        return out, mean, variance

    @staticmethod
    def keep(inputs, output):
        values, weight, bias, keys, present, *options = inputs
        return values, weight, bias, keys, *output[1:], present, *options

    @staticmethod
    def slopes(
        grad, values, weight, bias, keys, mean, variance, present, probability, epsilon, relu
    ):
        sizes = Sizes(values, weight.numel() // weight.shape[-1], present)
        inverse = (variance + epsilon).rsqrt().contiguous()
        scale = (weight * inverse).contiguous()
        shift = (bias - mean * scale).contiguous()
        sums, products = values.new_empty(2, sizes.groups, sizes.parts, sizes.d)
        fixed = (values, grad, sizes.present, mean, inverse, scale, shift, keys)
        numbers = (sizes.groups // keys.numel(), sizes.rows, sizes.d, probability)
        options = sizes.options | {"DROP": probability > 0, "RELU": relu}
        _reduce[(sizes.groups, sizes.parts, sizes.tiles)](
            *fixed, sums, products, *numbers, ROUNDS=ROUNDS, **options
        )
        sums, products = sums.sum(1), products.sum(1)
        out = torch.empty_like(values)
        means, slopes = sums / sizes.count, products / sizes.count
        _normed_back[sizes.grid](*fixed, means, slopes, out, *numbers, **options)
        return out, products.view_as(weight), sums.view_as(weight)
