"""``dropout(relu(BatchNorm(x))) W^T`` of the nodes or edges of many folds.

What lies between the norm and the product is never in memory. Forward, rows are read to sum their
moments, and once more to multiply them. Backward, one pass makes sums and another the gradient.

The sums are products ``T = g^T o`` and ``U = g^T (o u)``. Here g is the gradient above, o says
which numbers are heard, and u are standardised values. Since relu(v) = o v and v = w u + b, the
gradient of W is ``w U + b T``. Norms need the column sums of ``W T`` and of ``W U``.

Rows may be absent. Dropout draws the numbers of :func:`randomness.uniform`, each way.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, exact, power_of_2
from brio_core.kernels.norm_relu import Sizes, counted
from brio_core.kernels.uniform import keeps

# Channels of a tile, before or after: more would not fit into registers.
WIDTH = 64
# Numbers of a tile, warps of a program and loads under way: of layers with one channel after, whose
# products are those of vectors, of layers with at most 32 channels, and of others.
TILES = {
    "forward": ((2048, 4, 1), (4096, 4, 1), (4096, 4, 1)),
    "sums": ((2048, 4, 1), (2048, 2, 1), (4096, 8, 2)),
    "back": ((2048, 4, 1), (1024, 4, 1), (4096, 8, 1)),
}
# A program sums at least so many rows, and a group has at most so many programs (times tiles).
LEAST, PARTS = 1024, 256


@triton.jit
def _some(here, MASKED: tl.constexpr):
    """Whether a tile is worth reading. Absent rows are often side by side."""
    return tl.max(here.to(tl.int32), 0) > 0 if MASKED else True


@triton.jit
def _read(
    values, scale, offset, keys, here, group, groups_per_fold, rows, start, d: tl.constexpr,
    column, rate, DROP: tl.constexpr, RELU: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Numbers of a tile before and after the norm, and which of them the product hears."""
    inside = here[:, None] & (column < d)[None, :]
    place = tl.arange(0, ROWS)[:, None] * d + column[None, :]
    value = tl.load(values + (group * rows + start) * d + place, mask=inside, other=0.0)
    normed = value * tl.load(scale + group * d + column, mask=column < d, other=0.0)[None, :]
    normed += tl.load(offset + group * d + column, mask=column < d, other=0.0)[None, :]
    heard = inside
    if RELU:
        # What is no number is heard, or training could diverge unseen.
        heard &= ~(normed <= 0)
    if DROP:
        key = tl.load(keys + group // groups_per_fold).to(tl.uint32)
        first = (group % groups_per_fold * rows + start).to(tl.uint32) * d
        heard &= keeps(first + place.to(tl.uint32), key, rate)
    return value, normed, heard


@triton.jit
def _forward(
    values, present, scale, offset, matrix, keys, out, groups_per_fold, rows,
    d: tl.constexpr, e: tl.constexpr, rate,
    MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    group, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * ROWS
    here = counted(present, group, rows, start + tl.arange(0, ROWS), MASKED)
    unit = tl.program_id(2) * E + tl.arange(0, E)
    total = tl.zeros((ROWS, E), tl.float32)
    if _some(here, MASKED):
        for begin in range(0, d, D):
            column = begin + tl.arange(0, D)
            _, normed, heard = _read(
                values, scale, offset, keys, here, group, groups_per_fold, rows, start, d,
                column, rate, DROP, RELU, ROWS,
            )  # fmt: skip
            normed = tl.where(heard, normed, 0.0)
            if e == 1:
                factor = tl.load(matrix + group * d + column, mask=column < d, other=0.0)
                total += tl.sum(normed * factor[None, :], 1)[:, None]
            else:
                factor = tl.load(
                    matrix + (group * e + unit[None, :]) * d + column[:, None],
                    mask=(unit < e)[None, :] & (column < d)[:, None], other=0.0,
                )  # fmt: skip
                total += tl.dot(normed, factor, input_precision=PRECISION)
    total *= 1.0 / (1.0 - rate)
    row = tl.arange(0, ROWS)
    target = out + (group * rows + start) * e + row[:, None] * e + unit[None, :]
    tl.store(target, total, mask=(start + row < rows)[:, None] & (unit < e)[None, :])


@triton.jit
def _sums(
    values, grad, present, scale, offset, mean, keys, opened, along, groups_per_fold, rows,
    d: tl.constexpr, e: tl.constexpr, rate, rounds,
    MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    """Products of the gradient with which numbers are heard, and with those, centred."""
    group, part = tl.program_id(1).to(tl.int64), tl.program_id(0)
    tiles: tl.constexpr = (d + D - 1) // D
    column = tl.program_id(2) % tiles * D + tl.arange(0, D)
    unit = tl.program_id(2) // tiles * E + tl.arange(0, E)
    centre = tl.load(mean + group * d + column, mask=column < d, other=0.0)[None, :]
    # With one channel after, rows of the tile are added up when all is done.
    lines: tl.constexpr = ROWS if e == 1 else E
    first = tl.zeros((lines, D), tl.float32)
    second = tl.zeros((lines, D), tl.float32)
    for turn in range(rounds):
        start = (part * rounds + turn) * ROWS
        here = counted(present, group, rows, start + tl.arange(0, ROWS), MASKED)
        if _some(here, MASKED):
            value, _, heard = _read(
                values, scale, offset, keys, here, group, groups_per_fold, rows, start, d,
                column, rate, DROP, RELU, ROWS,
            )  # fmt: skip
            row = tl.arange(0, ROWS)
            source = grad + (group * rows + start) * e
            if e == 1:
                above = tl.load(source + row, mask=here, other=0.0)[:, None]
                above = tl.where(heard, above, 0.0)
                first += above
                second += above * (value - centre)
            else:
                above = tl.load(
                    source + row[:, None] * e + unit[None, :],
                    mask=here[:, None] & (unit < e)[None, :], other=0.0,
                )  # fmt: skip
                above = tl.trans(above)
                value = tl.where(heard, value - centre, 0.0)
                first += tl.dot(above, heard.to(tl.float32), input_precision=PRECISION)
                second += tl.dot(above, value, input_precision=PRECISION)
    place = (group * tl.num_programs(0) + part) * e * d
    if e == 1:
        tl.store(opened + place + column, tl.sum(first, 0), mask=column < d)
        tl.store(along + place + column, tl.sum(second, 0), mask=column < d)
    else:
        inside = (unit < e)[:, None] & (column < d)[None, :]
        place += unit[:, None] * d + column[None, :]
        tl.store(opened + place, first, mask=inside)
        tl.store(along + place, second, mask=inside)


@triton.jit
def _back(
    values, grad, present, scale, offset, mean, keys, matrix, means, slopes, out, groups_per_fold,
    rows, d: tl.constexpr, e: tl.constexpr, rate,
    MASKED: tl.constexpr, DROP: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    group, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * ROWS
    here = counted(present, group, rows, start + tl.arange(0, ROWS), MASKED)
    column, row = tl.program_id(2) * D + tl.arange(0, D), tl.arange(0, ROWS)
    result = tl.zeros((ROWS, D), tl.float32)
    if _some(here, MASKED):
        source = grad + (group * rows + start) * e
        for begin in range(0, e, E):
            unit = begin + tl.arange(0, E)
            factor = matrix + (group * e + unit[:, None]) * d + column[None, :]
            inside = (unit < e)[:, None] & (column < d)[None, :]
            if e == 1:
                above = tl.load(source + row, mask=here, other=0.0)
                result = above[:, None] * tl.load(factor, mask=inside, other=0.0)
            else:
                above = tl.load(
                    source + row[:, None] * e + unit[None, :],
                    mask=here[:, None] & (unit < e)[None, :], other=0.0,
                )  # fmt: skip
                factor = tl.load(factor, mask=inside, other=0.0)
                result += tl.dot(above, factor, input_precision=PRECISION)
        value, _, heard = _read(
            values, scale, offset, keys, here, group, groups_per_fold, rows, start, d,
            column, rate, DROP, RELU, ROWS,
        )  # fmt: skip
        place, inside = group * d + column, column < d
        factor = tl.load(scale + place, mask=inside, other=0.0) / (1.0 - rate)
        result = tl.where(heard, result * factor[None, :], 0.0)
        value -= tl.load(mean + place, mask=inside, other=0.0)[None, :]
        result -= value * tl.load(slopes + place, mask=inside, other=0.0)[None, :]
        result -= tl.load(means + place, mask=inside, other=0.0)[None, :]
        result = tl.where(here[:, None], result, 0.0)
    target = out + (group * rows + start) * d + row[:, None] * d + column[None, :]
    tl.store(target, result, mask=(start + row < rows)[:, None] & (column < d)[None, :])


class _Layer:
    """What all kernels of a layer get."""

    def __init__(self, values, weight, bias, matrix, keys, mean, variance, sizes, options) -> None:
        self.rate, epsilon, relu = options
        self.sizes, (self.e, self.d) = sizes, matrix.shape[-2:]
        self.values, self.matrix, self.keys, self.mean = values, matrix, keys, mean
        self.inverse = (variance + epsilon).rsqrt()
        self.scale = (weight * self.inverse).contiguous()
        self.offset = (bias - mean * self.scale).contiguous()
        self.norm = (sizes.present, self.scale, self.offset)
        self.options = {"MASKED": sizes.options["MASKED"], "DROP": self.rate > 0, "RELU": relu}
        self.options["PRECISION"] = "ieee" if exact() else "tf32"

    def forward(self) -> Tensor:
        out, tile = self.values.new_empty(*self.values.shape[:-1], self.e), self._tile("forward")
        grid = (triton.cdiv(self.sizes.rows, tile["ROWS"]), triton.cdiv(self.e, tile["E"]))
        self._launch(_forward, *grid, (self.values, *self.norm, self.matrix, self.keys, out), tile)
        return out

    def sums(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """T and U of every group, (G, e, d)."""
        rows, tile = self.sizes.rows, self._tile("sums")
        # So many that it does not depend on how many groups there are: that would change sums.
        rounds = triton.cdiv(max(LEAST, triton.cdiv(rows, PARTS)), tile["ROWS"])
        parts = triton.cdiv(rows, rounds * tile["ROWS"])
        tiles = triton.cdiv(self.d, tile["D"]) * triton.cdiv(self.e, tile["E"])
        opened, along = grad.new_empty(2, self.sizes.groups, parts, self.e, self.d)
        tensors = (self.values, grad, *self.norm, self.mean, self.keys, opened, along)
        self._launch(_sums, parts, tiles, tensors, tile, rounds)
        opened, along = (part.sum(1).view_as(self.matrix) for part in (opened, along))
        left = 1.0 / (1.0 - self.rate)
        return opened * left, along * (left * self.inverse)[..., None, :]

    def back(self, grad: Tensor, means: Tensor, slopes: Tensor) -> Tensor:
        out, tile = torch.empty_like(self.values), self._tile("back")
        grid = (triton.cdiv(self.sizes.rows, tile["ROWS"]), triton.cdiv(self.d, tile["D"]))
        tensors = (self.values, grad, *self.norm, self.mean, self.keys, self.matrix)
        means, slopes = self.scale * means, self.scale * self.inverse * slopes
        self._launch(_back, *grid, (*tensors, means, slopes, out), tile)
        return out

    def _tile(self, kernel: str) -> dict[str, int]:
        """The tile of a kernel, no wider than the layer; a product takes at least 16 channels."""
        least = 1 if self.e == 1 else 16
        d, e = (min(WIDTH, max(least, power_of_2(side))) for side in (self.d, self.e))
        kind = 0 if self.e == 1 else 1 if max(d, e) <= 32 else 2
        numbers, warps, stages = TILES[kernel][kind]
        rows = max(16, numbers // max(d, e))
        return {"ROWS": rows, "D": d, "E": e, "num_warps": warps, "num_stages": stages}

    def _launch(self, kernel, parts: int, tiles: int, tensors: tuple, tile, *more: int) -> None:
        groups, rows = self.sizes.groups, self.sizes.rows
        numbers = (groups // self.keys.numel(), rows, self.d, self.e, self.rate, *more)
        kernel[parts, groups, tiles](*tensors, *numbers, **self.options, **tile)


def _sizes(values: Tensor, weight: Tensor, present: Tensor | None) -> Sizes:
    return Sizes(values, weight.numel() // weight.shape[-1], present)


class NormLinear(Fused):
    """Values (*G, ..., D), weight and bias (*G, D), W (*G, e, D), keys (*F) where F leads G.

    ``present`` (*G, rows) tells which rows count, or is None; absent ones become zero.
    Gives the product (*G, ..., e), and mean and biased variance (*G, D) and the number of rows
    (*G, 1), which are constants.
    """

    @staticmethod
    def run(values, weight, bias, matrix, keys, present, *options):
        sizes = _sizes(values, weight, present)
        mean, variance = (found.view_as(weight) for found in sizes.moments(values))
        count = mean.new_zeros(sizes.groups, 1).add(sizes.count).view_as(mean[..., :1])
        given = (values, weight, bias, matrix, keys, mean, variance)
        return _Layer(*given, sizes, options).forward(), mean, variance, count

    @staticmethod
    def keep(inputs, output):
        *given, present, rate, epsilon, relu = inputs
        return *given, *output[1:], present, rate, epsilon, relu

    @staticmethod
    def slopes(grad, values, weight, bias, matrix, keys, mean, variance, count, present, *options):
        given = (values, weight, bias, matrix, keys, mean, variance)
        layer = _Layer(*given, _sizes(values, weight, present), options)
        opened, along = layer.sums(grad)
        to_bias, to_weight = ((matrix * part).sum(-2) for part in (opened, along))
        to_matrix = weight[..., None, :] * along + bias[..., None, :] * opened
        # Statistics that are given have no slope; they are divided by an endless number of rows.
        to_values = layer.back(grad, to_bias / count, to_weight / count)
        return to_values, to_weight, to_bias, to_matrix


class RunningNormLinear(Fused):
    """The same by statistics that are given, mean and variance (*G, D), with the product alone."""

    @staticmethod
    def run(values, weight, bias, matrix, keys, mean, variance, present, *options):
        given = (values, weight, bias, matrix, keys, mean, variance)
        return _Layer(*given, _sizes(values, weight, present), options).forward()

    @staticmethod
    def slopes(grad, values, weight, bias, matrix, keys, mean, variance, present, *options):
        given = (values, weight, bias, matrix, keys, mean, variance)
        endless = torch.full_like(mean[..., :1], torch.inf)
        return NormLinear.slopes(grad, *given, endless, present, *options)
