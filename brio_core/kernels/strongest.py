"""The k largest entries of short rows, by bisection over the bits of the threshold.

Non-negative floats are ordered like their bits, so 31 halvings find the k-th largest exactly,
without leaving the registers and without the sorting that torch does on top.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import to_front

# Numbers that one program holds.
TILE = 1024
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


class Strongest(torch.autograd.Function):
    """The ``wanted`` largest off-diagonal entries of each row of (..., P, P), as bool.

    Entries are not negative, and ``wanted`` is below P; of equal ones the lower index wins.
    """

    @staticmethod
    def forward(strength: Tensor, wanted: int) -> Tensor:
        strength = strength.contiguous()
        nodes = strength.shape[-1]
        rows = strength.numel() // nodes
        out = torch.empty_like(strength, dtype=torch.int8)
        columns = triton.next_power_of_2(nodes)
        height = max(1, TILE // columns)
        _strongest[(triton.cdiv(rows, height),)](
            strength, out, rows, nodes, wanted, ROWS=height, COLUMNS=columns
        )
        return out.view(torch.bool)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx, grad):
        return None, None

    @staticmethod
    def vmap(info, in_dims, strength, wanted):
        return Strongest.apply(*to_front(info, in_dims[:1], (strength,)), wanted), 0
