"""Medians of many short rows of numbers that are not negative.

Their bits are in the order of the numbers. So the bits of a middle one are found from the highest
on, by counting what is below. Torch would sort every row and keep track of places.
"""

import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Constant, row_tile

# Numbers in a tile, its narrowest row, and the longest row. Few widths mean few compilations.
TILE, NARROWEST, LONGEST = 2048, 64, 2048


@triton.jit(do_not_specialize=["width"])
def _median(values, out, rows, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    value = tl.load(values + row[:, None] * width + column[None, :], mask=inside, other=0.0)
    # Zeros of either sign are one number; the padding is above all.
    bits = tl.where(inside, tl.abs(value).to(tl.int32, bitcast=True), 0x7FFFFFFF)
    below = (width - 1) // 2
    found = tl.zeros((ROWS,), tl.int32)
    for turn in range(31):
        candidate = found + (1 << (30 - turn))
        smaller = tl.sum((bits < candidate[:, None]).to(tl.int32), 1)
        found = tl.where(smaller <= below, candidate, found)
    # The other middle one is the same number, or the next.
    until = tl.sum((bits <= found[:, None]).to(tl.int32), 1)
    following = tl.min(tl.where(bits > found[:, None], bits, 0x7FFFFFFF), 1)
    other = tl.where(until > width // 2, found, following)
    middle = found.to(tl.float32, bitcast=True) + other.to(tl.float32, bitcast=True)
    tl.store(out + row, middle * 0.5, mask=row < rows)


class Median(Constant):
    """Rows (..., n) of up to ``LONGEST`` numbers to (...); even rows have the middle two's mean."""

    @staticmethod
    def run(values: Tensor) -> Tensor:
        out = values.new_empty(values.shape[:-1])
        width = values.shape[-1]
        tile = row_tile(max(NARROWEST, width), TILE)
        grid = (triton.cdiv(out.numel(), tile["ROWS"]),)
        _median[grid](values, out, out.numel(), width, **tile)
        return out
