"""The median of short rows, by bisection over the bits of the two middle values.

Non-negative floats are ordered like their bits, so 31 halvings find a value of given rank exactly:
the numbers that sorting gives, read once and never moved.
"""

import triton
import triton.language as tl
from torch import Tensor

# Numbers that one program holds, and the shortest row that it is made for.
TILE, SHORTEST = 2048, 64
INFINITY = tl.constexpr(0x7F800000)


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
    columns = max(SHORTEST, triton.next_power_of_2(count))
    height = max(1, TILE // columns)
    _median[(triton.cdiv(out.numel(), height),)](
        values, out, out.numel(), count, ROWS=height, COLUMNS=columns,
        num_warps=min(16, max(4, columns // 256)),
    )  # fmt: skip
    return out
