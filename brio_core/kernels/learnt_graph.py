"""A graph of the strongest pairs of regions, ``relu(tanh(S + S^T))``, and the way back.

Non-negative floats are ordered as the integers that share their bits. So the m-th largest number of
a row is found bit by bit: a bit belongs to it if m numbers or more are not below. This is exact;
torch would sort. The graph is symmetric: only scores and gradients are read from its mirror image.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2, row_tile

# Numbers that one program searches, and the side of a square of a matrix.
TILE, SIDE = 1024, 32


@triton.jit
def _square(n: tl.constexpr, SIDE: tl.constexpr):
    """The first number of this program's matrix over n, and the square's rows and columns."""
    squares: tl.constexpr = (n + SIDE - 1) // SIDE
    square = tl.program_id(0)
    first = (square // (squares * squares)).to(tl.int64) * n
    row = square // squares % squares * SIDE + tl.arange(0, SIDE)
    column = square % squares * SIDE + tl.arange(0, SIDE)
    return first, row[:, None], column[None, :], (row < n)[:, None] & (column < n)[None, :]


@triton.jit
def _with_mirror(values, first, row, column, inside, n: tl.constexpr):
    """A square of a matrix plus its mirror image, which is read as it lies in memory."""
    here = tl.load(values + first * n + row * n + column, mask=inside, other=0.0)
    across, along = tl.trans(column), tl.trans(row)
    mirror = values + first * n + across * n + along
    return here + tl.trans(tl.load(mirror, mask=(across < n) & (along < n), other=0.0))


@triton.jit
def _strength(scores, out, n: tl.constexpr, SIDE: tl.constexpr):
    first, row, column, inside = _square(n, SIDE)
    value = _with_mirror(scores, first, row, column, inside, n)
    value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
    # A small tanh is a polynomial, for one minus almost one would have few digits.
    square = value * value
    small = -5.70498872745e-3 * square + 2.06390887954e-2
    small = (small * square - 5.37397155531e-2) * square + 1.33314422036e-1
    small = (small * square - 3.33332819422e-1) * square * value + value
    large = 1.0 - 2.0 / (tl.exp(2.0 * value) + 1.0)
    value = tl.where(value < 0.625, small, large)
    tl.store(out + first * n + row * n + column, value, mask=inside)


@triton.jit
def _bits(values, place, inside, off_diagonal):
    """Bits of some numbers, which are not negative; -1 where none may be chosen."""
    bits = tl.load(values + place, mask=inside, other=0.0).to(tl.int32, bitcast=True)
    return tl.where(inside & off_diagonal, tl.maximum(bits, 0), -1)


@triton.jit
def _search(
    values, levels, lasts, rows, n: tl.constexpr, wanted, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """The wanted-th largest number of every row as bits, and the last column that has it."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows)[:, None] & (column < n)
    place = row[:, None].to(tl.int64) * n + column
    bits = _bits(values, place, inside, (row % n)[:, None] != column)
    level = tl.zeros((ROWS,), tl.int32)
    for turn in range(31):
        higher = level | (1 << (30 - turn))
        count = tl.sum((bits >= higher[:, None]).to(tl.int32), 1)
        level = tl.where(count >= wanted, higher, level)
    tied = bits == level[:, None]
    room = wanted - tl.sum((bits > level[:, None]).to(tl.int32), 1)
    chosen = tied & (tl.cumsum(tied.to(tl.int32), 1) <= room[:, None])
    tl.store(levels + row, level, mask=row < rows)
    tl.store(lasts + row, tl.max(tl.where(chosen, column, -1), 1), mask=row < rows)


@triton.jit
def _keep(values, levels, lasts, n: tl.constexpr, SIDE: tl.constexpr):
    """Set to zero what neither end has chosen."""
    first, row, column, inside = _square(n, SIDE)
    place = first * n + row * n + column
    bits = _bits(values, place, inside, row != column)
    level = tl.load(levels + first + row, mask=row < n, other=0)
    last = tl.load(lasts + first + row, mask=row < n, other=0)
    chosen = (bits > level) | ((bits == level) & (column <= last))
    level = tl.load(levels + first + column, mask=column < n, other=0)
    last = tl.load(lasts + first + column, mask=column < n, other=0)
    chosen |= (bits > level) | ((bits == level) & (row <= last))
    tl.store(values + place, 0.0, mask=inside & ~chosen)


@triton.jit
def _backward(grad, learnt, out, n: tl.constexpr, SIDE: tl.constexpr):
    first, row, column, inside = _square(n, SIDE)
    place = first * n + row * n + column
    value = tl.load(learnt + place, mask=inside, other=0.0)
    slope = tl.where(value > 0, 1.0 - value * value, 0.0)
    slope *= _with_mirror(grad, first, row, column, inside, n)
    tl.store(out + place, slope, mask=inside)


def _found(strength: Tensor, wanted: int) -> tuple[Tensor, Tensor]:
    """For every row, the bits of the wanted-th largest number and the last column to take it."""
    n = strength.shape[-1]
    rows, tile = strength.numel() // n, row_tile(n, TILE)
    levels, lasts = strength.new_empty(2, rows, dtype=torch.int32)
    _search[(triton.cdiv(rows, tile["ROWS"]),)](
        strength, levels, lasts, rows, n, wanted, num_warps=1, **tile
    )
    return levels, lasts


def _launch(kernel, n: int, graphs: int, *tensors: Tensor) -> None:
    side = min(SIDE, max(16, power_of_2(n)))
    kernel[(graphs * triton.cdiv(n, side) ** 2,)](*tensors, n, SIDE=side)


class LearntGraph(Fused):
    """Scores (..., P, P) and how many entries every row chooses to (..., P, P).

    The choice is that of :func:`graphs.symmetric_top`.
    """

    @staticmethod
    def run(scores, wanted):
        n, out = scores.shape[-1], torch.empty_like(scores)
        graphs = scores.numel() // (n * n)
        _launch(_strength, n, graphs, scores, out)
        _launch(_keep, n, graphs, out, *_found(out, wanted))
        return out

    @staticmethod
    def keep(inputs, output):
        return (output,)

    @staticmethod
    def slopes(grad, learnt):
        n, out = learnt.shape[-1], torch.empty_like(learnt)
        _launch(_backward, n, learnt.numel() // (n * n), grad, learnt, out)
        return out
