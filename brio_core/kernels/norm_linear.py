"""``relu(BatchNorm(x)) W^T`` of the edges of many folds, in which some rows are absent.

What lies between the norm and the product is never in memory. Forward, rows are read to sum their
moments, and once more to multiply them. Backward, one pass makes sums and another the gradient.

The sums are products ``T = g^T o`` and ``U = g^T (o u)``. Here g is the gradient above, o says
which numbers are heard, and u are standardised values. Since relu(v) = o v and v = w u + b, the
gradient of W is ``w U + b T``. Norms need the column sums of ``W T`` and of ``W U``.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import LARGEST, SMALLEST, exact, factor, power_of_2
from brio_core.kernels.norm_relu import Sizes

# Channels of a tile, before or after: more would not fit into registers.
WIDTH = 64
# Numbers of a tile, warps of a program and loads under way: of layers with one channel after, whose
# products are those of vectors, of layers with at most 32 channels, and of others.
TILES = {
    "forward": ((2048, 4, 1), (4096, 4, 1), (4096, 4, 1)),
    "sums": ((2048, 4, 1), (2048, 2, 1), (4096, 8, 2)),
    "back": ((2048, 4, 1), (1024, 2, 1), (4096, 8, 1)),
}
# A program sums at least so many rows, and a group has at most so many programs (times tiles).
LEAST, PARTS = 1024, 256


@triton.jit
def _present(present, group, rows, start, ROWS: tl.constexpr):
    """Which rows of a tile count. It is worth reading if any does: absent ones are side by side."""
    row = start + tl.arange(0, ROWS)
    return tl.load(present + group * rows + row, mask=row < rows, other=0) > 0


@triton.jit
def _read(
    values, scale, offset, here, group, rows, start, d: tl.constexpr, column, ROWS: tl.constexpr
):  # fmt: skip
    """Numbers of a tile before and after the norm, and which of them the product hears."""
    inside = here[:, None] & (column < d)[None, :]
    place = tl.arange(0, ROWS)[:, None] * d + column[None, :]
    value = tl.load(values + (group * rows + start) * d + place, mask=inside, other=0.0)
    value = value.to(tl.float32)
    normed = value * tl.load(scale + group * d + column, mask=column < d, other=0.0)[None, :]
    normed += tl.load(offset + group * d + column, mask=column < d, other=0.0)[None, :]
    # What is no number is heard, or training could diverge unseen.
    return value, normed, inside & ~(normed <= 0)


@triton.jit
def _above(grad, here, group, rows, start, e: tl.constexpr, unit, ROWS: tl.constexpr):
    """Some units of the gradient of a tile's rows."""
    source = grad + (group * rows + start) * e + tl.arange(0, ROWS)[:, None] * e + unit[None, :]
    inside = here[:, None] & (unit < e)[None, :]
    return tl.load(source, mask=inside, other=0.0).to(tl.float32)


@triton.jit
def _forward(
    values, present, scale, offset, matrix, out, rows, d: tl.constexpr, e: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    group, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * ROWS
    here = _present(present, group, rows, start, ROWS)
    unit = tl.program_id(2) * E + tl.arange(0, E)
    total = tl.zeros((ROWS, E), tl.float32)
    if tl.max(here.to(tl.int32), 0) > 0:
        for begin in range(0, d, D):
            column = begin + tl.arange(0, D)
            _, normed, heard = _read(
                values, scale, offset, here, group, rows, start, d, column, ROWS
            )
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
    row = tl.arange(0, ROWS)
    target = out + (group * rows + start) * e + row[:, None] * e + unit[None, :]
    tl.store(target, total, mask=(start + row < rows)[:, None] & (unit < e)[None, :])


@triton.jit
def _sums(
    values, grad, present, scale, offset, mean, opened, along, rows,
    d: tl.constexpr, e: tl.constexpr, rounds,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
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
        here = _present(present, group, rows, start, ROWS)
        if tl.max(here.to(tl.int32), 0) > 0:
            value, _, heard = _read(
                values, scale, offset, here, group, rows, start, d, column, ROWS
            )  # fmt: skip
            above = _above(grad, here, group, rows, start, e, unit, ROWS)
            if e == 1:
                above = tl.where(heard, above, 0.0)
                first += above
                second += above * (value - centre)
            else:
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
    values, grad, present, scale, offset, mean, matrix, factors, means, slopes, out, rows,
    d: tl.constexpr, e: tl.constexpr,
    PRECISION: tl.constexpr, ROWS: tl.constexpr, D: tl.constexpr, E: tl.constexpr,
):  # fmt: skip
    group, start = tl.program_id(1).to(tl.int64), tl.program_id(0) * ROWS
    here = _present(present, group, rows, start, ROWS)
    column, row = tl.program_id(2) * D + tl.arange(0, D), tl.arange(0, ROWS)
    result = tl.zeros((ROWS, D), tl.float32)
    if tl.max(here.to(tl.int32), 0) > 0:
        for begin in range(0, e, E):
            unit = begin + tl.arange(0, E)
            known = (unit < e)[:, None] & (column < d)[None, :]
            factor = matrix + (group * e + unit[:, None]) * d + column[None, :]
            factor = tl.load(factor, mask=known, other=0.0)
            above = _above(grad, here, group, rows, start, e, unit, ROWS)
            if e == 1:
                result = above * factor
            else:
                result += tl.dot(above, factor, input_precision=PRECISION)
        value, _, heard = _read(values, scale, offset, here, group, rows, start, d, column, ROWS)
        place, inside = group * d + column, column < d
        factor = tl.load(factors + place, mask=inside, other=0.0)
        result = tl.where(heard, result * factor[None, :], 0.0)
        value -= tl.load(mean + place, mask=inside, other=0.0)[None, :]
        result -= value * tl.load(slopes + place, mask=inside, other=0.0)[None, :]
        result -= tl.load(means + place, mask=inside, other=0.0)[None, :]
        result = tl.where(here[:, None], result, 0.0)
    target = out + (group * rows + start) * d + row[:, None] * d + column[None, :]
    tl.store(target, result, mask=(start + row < rows)[:, None] & (column < d)[None, :])


class NormLinear:
    """A norm of values (*F, ..., d) with weight and bias (*F, d), and W (*F, e, d) behind it.

    ``present`` (*F, rows) tells which rows count. Mean and variance (*F, d) are those of the
    values, unless they are given.
    """

    def __init__(self, values, weight, bias, matrix, present, epsilon, statistics=None) -> None:
        self.sizes = Sizes(values, weight.numel() // weight.shape[-1], present)
        self.e, self.d = matrix.shape[-2:]
        self.values, self.matrix, self.weight, self.bias = values, matrix, weight, bias
        self.mean, self.variance = statistics or (
            found.view_as(weight) for found in self.sizes.moments(values)
        )
        self.inverse = (self.variance + epsilon).rsqrt()
        self.scale = (weight * self.inverse).contiguous()
        offset = (bias - self.mean * self.scale).contiguous()
        self._norm = (self.sizes.present, self.scale, offset)

    def forward(self, dtype: torch.dtype) -> Tensor:
        """The product (*F, ..., e); absent rows become zero."""
        shape, tile = (*self.values.shape[:-1], self.e), self._tile("forward")
        out = self.values.new_empty(shape, dtype=dtype)
        grid = (triton.cdiv(self.sizes.rows, tile["ROWS"]), triton.cdiv(self.e, tile["E"]))
        self._launch(_forward, *grid, (self.values, *self._norm, self.matrix, out), tile)
        return out

    def slopes(
        self, grad: Tensor, unit: Tensor, peak: Tensor, count: Tensor, reach: Tensor
    ) -> tuple[Tensor, ...]:
        """What a gradient, given in units (*F) and not above a ``peak`` (*F), makes of the values.

        It comes in units of its own, short as factors of products are. None is above half of what
        float16 holds, not even ``reach`` times. Behind it come its units, its peak, and gradients
        of weight, bias and W. ``count`` (*F, 1) of rows divides sums to means.
        """
        opened, along = (part * unit[..., None, None] for part in self._sums(grad))
        to_weight, to_bias = ((self.matrix * part).sum(-2) for part in (along, opened))
        to_matrix = self.weight[..., None, :] * along + self.bias[..., None, :] * opened
        means = self.scale * to_bias / count
        # Of as many normalised numbers none is above the root of their count.
        bound = self.scale.abs() * self.matrix.abs().sum(-2) * peak[..., None] + means.abs()
        bound = (bound + (self.scale * to_weight / count.sqrt()).abs()).amax(-1)
        below = bound.clamp_min(SMALLEST) * reach / LARGEST
        slopes = self.scale * self.inverse * to_weight / count
        factors = self.scale * (unit / below)[..., None]
        means, slopes = (part / below[..., None] for part in (means, slopes))
        out, tile = torch.empty_like(self.values, dtype=factor()), self._tile("back")
        grid = (triton.cdiv(self.sizes.rows, tile["ROWS"]), triton.cdiv(self.d, tile["D"]))
        tensors = (self.values, grad, *self._norm, self.mean, self.matrix)
        self._launch(_back, *grid, (*tensors, factors, means, slopes, out), tile)
        return out, below, bound, to_weight, to_bias, to_matrix

    def _sums(self, grad: Tensor) -> tuple[Tensor, Tensor]:
        """T and U, (*F, e, d), of a gradient in its units."""
        rows, tile = self.sizes.rows, self._tile("sums")
        # So many that it does not depend on how many groups there are: that would change sums.
        rounds = triton.cdiv(max(LEAST, triton.cdiv(rows, PARTS)), tile["ROWS"])
        parts = triton.cdiv(rows, rounds * tile["ROWS"])
        tiles = triton.cdiv(self.d, tile["D"]) * triton.cdiv(self.e, tile["E"])
        opened, along = self.mean.new_empty(2, self.sizes.groups, parts, self.e, self.d)
        tensors = (self.values, grad, *self._norm, self.mean, opened, along)
        self._launch(_sums, parts, tiles, tensors, tile, rounds)
        opened, along = (part.sum(1).view_as(self.matrix) for part in (opened, along))
        return opened, along * self.inverse[..., None, :]

    def _tile(self, kernel: str) -> dict[str, int]:
        """The tile of a kernel, no wider than the layer; a product takes at least 16 channels."""
        least = 1 if self.e == 1 else 16
        d, e = (min(WIDTH, max(least, power_of_2(side))) for side in (self.d, self.e))
        kind = 0 if self.e == 1 else 1 if max(d, e) <= 32 else 2
        numbers, warps, stages = TILES[kernel][kind]
        rows = max(16, numbers // max(d, e))
        return {"ROWS": rows, "D": d, "E": e, "num_warps": warps, "num_stages": stages}

    def _launch(self, kernel, parts: int, tiles: int, tensors: tuple, tile, *more: int) -> None:
        numbers = (self.sizes.rows, self.d, self.e, *more)
        precision = "ieee" if exact() else "tf32"
        kernel[parts, self.sizes.groups, tiles](*tensors, *numbers, PRECISION=precision, **tile)
