"""Largest value in every bin of short rows, and the way back, in one pass each."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.mapping import Derivative, to_front

# Numbers that one program holds.
TILE = 4096


@triton.jit
def _forward(
    values, out, places, rows, length, BINS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < length)[None, :]
    value = tl.load(values + row[:, None] * length + column[None, :], mask=inside, other=0.0)
    for number in tl.static_range(BINS):
        first = number * length // BINS
        end = ((number + 1) * length + BINS - 1) // BINS
        there = ((column >= first) & (column < end))[None, :]
        largest = tl.max(tl.where(there, value, float("-inf")), 1)
        # Of equal values the first, or the bin's own first place where none compares equal.
        equal = there & (value == largest[:, None])
        place = tl.min(tl.where(equal, column[None, :], length), 1)
        place = tl.where(place < length, place, first)
        tl.store(out + row * BINS + number, largest, mask=row < rows)
        tl.store(places + row * BINS + number, place, mask=row < rows)


@triton.jit
def _backward(
    grad, places, out, rows, length, BINS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < length)[None, :]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for number in tl.static_range(BINS):
        above = tl.load(grad + row * BINS + number, mask=row < rows, other=0.0)
        place = tl.load(places + row * BINS + number, mask=row < rows, other=0)
        total += tl.where(column[None, :] == place[:, None], above[:, None], 0.0)
    tl.store(out + row[:, None] * length + column[None, :], total, mask=inside)


def _tile(rows: int, length: int) -> tuple[tuple[int], dict[str, int]]:
    columns = triton.next_power_of_2(length)
    height = max(1, TILE // columns)
    return (triton.cdiv(rows, height),), {"ROWS": height, "COLUMNS": columns}


class BinMax(torch.autograd.Function):
    """Values (..., L) to (..., bins), as ``nn.AdaptiveMaxPool1d``; and where they were."""

    @staticmethod
    def forward(values, bins):
        values = values.contiguous()
        length = values.shape[-1]
        out = values.new_empty(*values.shape[:-1], bins)
        places = torch.empty_like(out, dtype=torch.int32)
        rows = values.numel() // length
        grid, tile = _tile(rows, length)
        _forward[grid](values, out, places, rows, length, BINS=bins, **tile)
        return out, places

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.length = inputs[0].shape[-1]
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(output[1])

    @staticmethod
    def backward(ctx, grad, _):
        return _BinMaxBackward.apply(grad, *ctx.saved_tensors, ctx.length), None

    @staticmethod
    def vmap(info, in_dims, values, bins):
        return BinMax.apply(*to_front(info, in_dims[:1], (values,)), bins), (0, 0)


class _BinMaxBackward(Derivative):
    @staticmethod
    def forward(grad, places, length):
        grad, places = grad.contiguous(), places.contiguous()
        bins = grad.shape[-1]
        out = grad.new_empty(*grad.shape[:-1], length)
        rows = grad.numel() // bins
        grid, tile = _tile(rows, length)
        _backward[grid](grad, places, out, rows, length, BINS=bins, **tile)
        return out

    @staticmethod
    def vmap(info, in_dims, grad, places, length):
        front = to_front(info, in_dims[:2], (grad, places))
        return _BinMaxBackward.apply(*front, length), 0
