"""Products of graphs whose nodes have very few units; no number of a pair ever meets memory.

With two units or so, matrix products would be mostly padding, so numbers of pairs are sums of a
few outer products instead. One program has one graph, or one head of it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, node_tile


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
def _attend(
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
def _attend_back(
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


def _launch_attention(kernel, heads: int, scale: float, *tensors: Tensor) -> None:
    nodes, width = tensors[0].shape[-2:]
    kernel[(tensors[0].numel() // (nodes * width) * heads,)](
        *tensors, nodes, heads, scale, UNITS=width // heads, **node_tile(nodes)
    )


class NarrowAttention(Fused):
    """Attended values (..., P, H u) from queries, keys and values of that shape.

    ``u``, the units of a head, is a power of two; heads lie one after another.
    """

    @staticmethod
    def run(queries, keys, values, heads, scale):
        out = torch.empty_like(values)
        _launch_attention(_attend, heads, scale, queries, keys, values, out)
        return out

    @staticmethod
    def slopes(grad, queries, keys, values, heads, scale):
        inputs = (queries, keys, values)
        slopes = tuple(torch.empty_like(part) for part in inputs)
        _launch_attention(_attend_back, heads, scale, *inputs, grad, *slopes)
        return slopes


@triton.jit
def _products(factors, first, row, column, nodes, width, WIDTH: tl.constexpr, ROWS: tl.constexpr,
              COLUMNS: tl.constexpr):  # fmt: skip
    """Some rows of ``A A^T``, zero in the padding."""
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    for unit in tl.static_range(WIDTH):
        left = tl.load(factors + (first + row) * width + unit, mask=row < nodes, other=0.0)
        right = tl.load(factors + (first + column) * width + unit, mask=column < nodes, other=0.0)
        product += left[:, None] * right[None, :]
    return product


@triton.jit
def _sums(
    factors, out, nodes, width, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    first, column = tl.program_id(0).to(tl.int64) * nodes, tl.arange(0, COLUMNS)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        product = _products(factors, first, row, column, nodes, width, WIDTH, ROWS, COLUMNS)
        tl.store(out + first + row, tl.sum(tl.abs(product), 1), mask=row < nodes)


@triton.jit
def _sums_back(
    factors, grad, out, nodes, width, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    first, column = tl.program_id(0).to(tl.int64) * nodes, tl.arange(0, COLUMNS)
    sent = tl.load(grad + first + column, mask=column < nodes, other=0.0)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        product = _products(factors, first, row, column, nodes, width, WIDTH, ROWS, COLUMNS)
        received = tl.load(grad + first + row, mask=row < nodes, other=0.0)
        slope = received[:, None] + sent[None, :]
        slope = tl.where(product > 0, slope, tl.where(product < 0, -slope, 0.0))
        for unit in tl.static_range(WIDTH):
            right = tl.load(
                factors + (first + column) * width + unit, mask=column < nodes, other=0.0
            )
            total = tl.sum(slope * right[None, :], 1)
            tl.store(out + (first + row) * width + unit, total, mask=row < nodes)


def _launch_sums(kernel, factors: Tensor, *tensors: Tensor) -> None:
    nodes, width = factors.shape[-2:]
    kernel[(factors.numel() // (nodes * width),)](
        factors, *tensors, nodes, width, WIDTH=width, **node_tile(nodes)
    )


class AbsoluteSums(Fused):
    """Row sums of ``|A A^T|``, factors A (..., P, k) to sums (..., P)."""

    @staticmethod
    def run(factors):
        out = factors.new_empty(factors.shape[:-1])
        _launch_sums(_sums, factors, out)
        return out

    @staticmethod
    def slopes(grad, factors):
        out = torch.empty_like(factors)
        _launch_sums(_sums_back, factors, grad, out)
        return out
