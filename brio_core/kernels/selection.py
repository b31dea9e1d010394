"""Values of given rank in short rows, by bisection over the bits of the threshold.

Non-negative floats are ordered like their bits, so 31 halvings find the k-th largest exactly: the
numbers that sorting gives, without leaving the registers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Constant, power_of_2, row_tile

# Numbers that one program holds, and the shortest row that medians are made for.
STRONGEST_TILE, MEDIAN_TILE, SHORTEST = 1024, 2048, 64
INFINITY = tl.constexpr(0x7F800000)


@triton.jit
def _strongest(strength, out, rows, nodes, wanted, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < nodes)[None, :]
    offset = row[:, None] * nodes + column[None, :]
    value = tl.load(strength + offset, mask=inside, other=0.0)
    # A negative zero counts as zero; the diagonal and the padding come last.
    bits = tl.maximum(value.to(tl.int32, bitcast=True), 0)
    eligible = inside & (column[None, :] != (row % nodes)[:, None])
    bits = tl.where(eligible, bits, -1)
    low = tl.zeros((ROWS,), tl.int32)
    high = tl.zeros((ROWS,), tl.int32) + INFINITY + 1
    for _ in range(31):
        middle = low + (high - low) // 2
        enough = tl.sum((bits >= middle[:, None]).to(tl.int32), 1) >= wanted
        low = tl.where(enough, middle, low)
        high = tl.where(enough, high, middle)
    above, level = bits > low[:, None], bits == low[:, None]
    room = wanted - tl.sum(above.to(tl.int32), 1)
    order = tl.cumsum(level.to(tl.int32), 1)
    selected = above | (level & (order <= room[:, None]))
    tl.store(out + offset, selected.to(tl.int8), mask=inside)


class Strongest(Constant):
    """The ``wanted`` largest off-diagonal entries of each row of (..., P, P), as bool.

    Entries are not negative, and ``wanted`` is below P; of equal ones the lower index wins.
    """

    @staticmethod
    def run(strength: Tensor, wanted: int) -> Tensor:
        nodes = strength.shape[-1]
        rows = strength.numel() // nodes
        out = torch.empty_like(strength, dtype=torch.int8)
        tile = row_tile(nodes, STRONGEST_TILE)
        _strongest[(triton.cdiv(rows, tile["ROWS"]),)](strength, out, rows, nodes, wanted, **tile)
        return out.view(torch.bool)


# Samples differ in size: one program serves all that fit the same tile.
@triton.jit(do_not_specialize=["rows", "count"])
def _median(values, out, rows, count, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < count)[None, :]
    offset = row[:, None] * count + column[None, :]
    value = tl.load(values + offset, mask=inside, other=0.0)
    # A negative zero counts as zero; the padding is above everything.
    bits = tl.maximum(value.to(tl.int32, bitcast=True), 0)
    bits = tl.where((column < count)[None, :], bits, INFINITY + 1)
    # The smallest level that more than (count - 1) // 2 values do not exceed.
    low = tl.zeros((ROWS,), tl.int32) - 1
    high = tl.zeros((ROWS,), tl.int32) + INFINITY
    for _ in range(31):
        middle = low + (high - low) // 2
        enough = tl.sum((bits <= middle[:, None]).to(tl.int32), 1) > (count - 1) // 2
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle)
    # The upper middle value is the same one, or the next above it.
    reached = tl.sum((bits <= high[:, None]).to(tl.int32), 1)
    above = tl.min(tl.where(bits > high[:, None], bits, INFINITY), 1)
    upper = tl.where(reached > count // 2, high, above)
    lower_value = high.to(tl.float32, bitcast=True)
    upper_value = upper.to(tl.float32, bitcast=True)
    tl.store(out + row, (lower_value + upper_value) / 2, mask=row < rows)


def median(values: Tensor) -> Tensor:
    """The mean of the two middle values of each row (..., n), none of which is negative or NaN."""
    values = values.contiguous()
    count = values.shape[-1]
    out = values.new_empty(values.shape[:-1])
    columns = max(SHORTEST, power_of_2(count))
    tile = row_tile(columns, MEDIAN_TILE)
    _median[(triton.cdiv(out.numel(), tile["ROWS"]),)](
        values, out, out.numel(), count, **tile, num_warps=min(16, max(4, columns // 256))
    )
    return out
