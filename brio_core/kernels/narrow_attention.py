"""Self-attention with very few units per head; no weight of a pair ever meets memory.

One program has one head of one graph. With two units or so, matrix products would be mostly
padding, so scores are sums of a few outer products instead.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front

ROWS = 16


@triton.jit
def _attention(
    queries, keys, first, head, row, column, nodes, width, scale, UNITS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """How much some receivers attend to every sender."""
    score = tl.zeros((ROWS, COLUMNS), tl.float32)
    for unit in tl.static_range(UNITS):
        place = head * UNITS + unit
        query = tl.load(queries + (first + row) * width + place, mask=row < nodes, other=0.0)
        key = tl.load(keys + (first + column) * width + place, mask=column < nodes, other=0.0)
        score += (query * scale)[:, None] * key[None, :]
    score = tl.where((column < nodes)[None, :], score, -1.0e30)
    power = tl.exp(score - tl.max(score, 1)[:, None])
    return power / tl.sum(power, 1)[:, None]


@triton.jit
def _forward(
    queries, keys, values, out, nodes, heads, scale,
    UNITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    head, column, width = tl.program_id(0) % heads, tl.arange(0, COLUMNS), heads * UNITS
    first = (tl.program_id(0) // heads).to(tl.int64) * nodes
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        attention = _attention(
            queries, keys, first, head, row, column, nodes, width, scale, UNITS, ROWS, COLUMNS
        )
        for unit in tl.static_range(UNITS):
            place = head * UNITS + unit
            value = tl.load(
                values + (first + column) * width + place, mask=column < nodes, other=0.0
            )
            heard = tl.sum(attention * value[None, :], 1)
            tl.store(out + (first + row) * width + place, heard, mask=row < nodes)


@triton.jit
def _backward(
    queries, keys, values, grad, to_queries, to_keys, to_values, nodes, heads, scale,
    UNITS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    head, column, width = tl.program_id(0) % heads, tl.arange(0, COLUMNS), heads * UNITS
    first = (tl.program_id(0) // heads).to(tl.int64) * nodes
    units = tl.arange(0, UNITS)
    key_sum = tl.zeros((COLUMNS, UNITS), tl.float32)
    value_sum = tl.zeros((COLUMNS, UNITS), tl.float32)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        attention = _attention(
            queries, keys, first, head, row, column, nodes, width, scale, UNITS, ROWS, COLUMNS
        )
        through = tl.zeros((ROWS, COLUMNS), tl.float32)
        for unit in tl.static_range(UNITS):
            place = head * UNITS + unit
            # Zero in the padding, so that padded receivers add nothing to the sums.
            above = tl.load(grad + (first + row) * width + place, mask=row < nodes, other=0.0)
            value = tl.load(
                values + (first + column) * width + place, mask=column < nodes, other=0.0
            )
            through += above[:, None] * value[None, :]
            heard = tl.sum(attention * above[:, None], 0)
            value_sum += tl.where((units == unit)[None, :], heard[:, None], 0.0)
        slope = attention * (through - tl.sum(attention * through, 1)[:, None]) * scale
        for unit in tl.static_range(UNITS):
            place = head * UNITS + unit
            query = tl.load(queries + (first + row) * width + place, mask=row < nodes, other=0.0)
            key = tl.load(keys + (first + column) * width + place, mask=column < nodes, other=0.0)
            asked = tl.sum(slope * key[None, :], 1)
            tl.store(to_queries + (first + row) * width + place, asked, mask=row < nodes)
            told = tl.sum(slope * query[:, None], 0)
            key_sum += tl.where((units == unit)[None, :], told[:, None], 0.0)
    own = (first + column[:, None]) * width + head * UNITS + units[None, :]
    tl.store(to_keys + own, key_sum, mask=(column < nodes)[:, None])
    tl.store(to_values + own, value_sum, mask=(column < nodes)[:, None])


def _launch(kernel, heads: int, scale: float, *tensors: Tensor) -> None:
    nodes, width = tensors[0].shape[-2:]
    columns = max(16, triton.next_power_of_2(nodes))
    kernel[(tensors[0].numel() // (nodes * width) * heads,)](
        *tensors, nodes, heads, scale, UNITS=width // heads, ROWS=ROWS, COLUMNS=columns,
        num_warps=min(16, max(4, columns // 32)),
    )  # fmt: skip


class NarrowAttention(torch.autograd.Function):
    """Attended values (..., P, H u) from queries, keys and values of that shape.

    ``u``, the units of a head, is a power of two; heads lie one after another.
    """

    @staticmethod
    def forward(queries, keys, values, heads, scale):
        tensors = [part.contiguous() for part in (queries, keys, values)]
        out = torch.empty_like(tensors[2])
        _launch(_forward, heads, scale, *tensors, out)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.heads, ctx.scale = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, grad):
        slopes = _NarrowAttentionBackward.apply(*ctx.saved_tensors, grad, ctx.heads, ctx.scale)
        return *slopes, None, None

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return NarrowAttention.apply(*to_front(info, in_dims, inputs[:3]), *inputs[3:]), 0


class _NarrowAttentionBackward(Derivative):
    @staticmethod
    def forward(queries, keys, values, grad, heads, scale):
        tensors = [part.contiguous() for part in (queries, keys, values, grad)]
        slopes = [torch.empty_like(part) for part in tensors[:3]]
        _launch(_backward, heads, scale, *tensors, *slopes)
        return tuple(slopes)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        front = to_front(info, in_dims, inputs[:4])
        return _NarrowAttentionBackward.apply(*front, *inputs[4:]), (0, 0, 0)
