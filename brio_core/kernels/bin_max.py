"""Largest value in every bin of short rows, and the way back, in one pass each."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused, row_tile

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


class BinMax(Fused):
    """Values (..., L) to (..., bins), as ``nn.AdaptiveMaxPool1d``; and where they were."""

    @staticmethod
    def run(values, bins):
        length = values.shape[-1]
        rows = values.numel() // length
        out = values.new_empty(*values.shape[:-1], bins)
        places = torch.empty_like(out, dtype=torch.int32)
        tile = row_tile(length, TILE)
        grid = (triton.cdiv(rows, tile["ROWS"]),)
        _forward[grid](values, out, places, rows, length, BINS=bins, **tile)
        return out, places

    @staticmethod
    def keep(inputs, output):
        return output[1], inputs[0].shape[-1]

    @staticmethod
    def slopes(grad, places, length):
        bins = grad.shape[-1]
        rows = grad.numel() // bins
        out = grad.new_empty(*grad.shape[:-1], length)
        tile = row_tile(length, TILE)
        grid = (triton.cdiv(rows, tile["ROWS"]),)
        _backward[grid](grad, places, out, rows, length, BINS=bins, **tile)
        return out
