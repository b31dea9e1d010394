"""The largest number in every bin of short rows: one read forward, one read and write backward."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, row_tile

# Numbers of a tile.
TILE = 4096


@triton.jit
def _bin(value, number, length, BINS: tl.constexpr, COLUMNS: tl.constexpr):
    """The largest numbers in a bin, and where they are. Bins may share a place."""
    column = tl.arange(0, COLUMNS)[None, :]
    first = number * length // BINS
    end = ((number + 1) * length + BINS - 1) // BINS
    inside = (column >= first[:, None]) & (column < end[:, None])
    value = tl.where(inside, value, float("-inf"))
    # A maximum passes over what is no number, which must not be hidden.
    unknown = tl.max((value != value).to(tl.int32), 1) > 0
    largest = tl.where(unknown, float("nan"), tl.max(value, 1))
    return largest, inside & (value == largest[:, None])


@triton.jit
def _rows(values, lengths, rows, share, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Some rows: their numbers, their lengths and places. ``share`` rows have one length."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    length = tl.load(lengths + row // share, mask=row < rows, other=1).to(tl.int32)
    return tl.load(values + place, mask=inside, other=0.0), length, row, place, inside


@triton.jit
def _forward(
    values, lengths, out, rows, share, width: tl.constexpr,
    BINS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    value, length, row, _, _ = _rows(values, lengths, rows, share, width, ROWS, COLUMNS)
    for number in tl.static_range(BINS):
        largest, _ = _bin(value, number, length, BINS, COLUMNS)
        tl.store(out + row * BINS + number, largest, mask=row < rows)


@triton.jit
def _backward(
    grad, values, lengths, out, rows, share, width: tl.constexpr,
    BINS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    value, length, row, place, inside = _rows(values, lengths, rows, share, width, ROWS, COLUMNS)
    slope = tl.zeros((ROWS, COLUMNS), tl.float32)
    for number in tl.static_range(BINS):
        _, chosen = _bin(value, number, length, BINS, COLUMNS)
        above = tl.load(grad + row * BINS + number, mask=row < rows, other=0.0)
        # Equal numbers share the gradient, as with torch.
        above /= tl.maximum(tl.sum(chosen.to(tl.int32), 1), 1).to(tl.float32)
        slope += tl.where(chosen, above[:, None], 0.0)
    tl.store(out + place, slope, mask=inside)


def _launch(kernel, tensors: tuple, values: Tensor, lengths: Tensor, bins: int) -> None:
    width = values.shape[-1]
    rows, tile = values.numel() // width, row_tile(width, TILE)
    kernel[(triton.cdiv(rows, tile["ROWS"]),)](
        *tensors, rows, rows // lengths.numel(), width, BINS=bins, **tile
    )


class MaxOfBins(Fused):
    """Values (*L, ..., W) and lengths (*L) in places to the largest of every bin, (*L, ..., bins).

    Bins are those of ``nn.AdaptiveMaxPool1d`` on the first ``length`` places.
    """

    @staticmethod
    def run(values, lengths, bins):
        out = values.new_empty(*values.shape[:-1], bins)
        _launch(_forward, (values, lengths, out), values, lengths, bins)
        return out

    @staticmethod
    def slopes(grad, values, lengths, bins):
        out = torch.empty_like(values)
        _launch(_backward, (grad, values, lengths, out), values, lengths, bins)
        return out
