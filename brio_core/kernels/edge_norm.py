"""Instance norm over the edges of every graph, for values ``s_i + r_j`` of nodes at their ends.

What :class:`edge_scores.InstanceEdgeNorm` does, with the units' dropout behind it. A program holds
some units of one graph, whose nodes it goes through more than once: after the first time they are
in a near cache.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2

ROWS, COLUMNS = 32, 32


@triton.jit
def _spot(graph, start, p, d, column, ROWS: tl.constexpr):
    """Nodes from ``start`` on: their offsets, which of them exist, and their rows."""
    row = start + tl.arange(0, ROWS)
    inside = (row < p)[:, None] & (column < d)[None, :]
    return (graph * p + row[:, None]) * d + column[None, :], inside, row


@triton.jit
def _centre(
    sender, receiver, degree, left, right, p, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Subtract the mean over edges from both sides."""
    graph = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.zeros((ROWS, COLUMNS), tl.float32)
    second = tl.zeros((ROWS, COLUMNS), tl.float32)
    count = tl.zeros((ROWS,), tl.float32)
    for start in range(0, p, ROWS):
        offset, inside, row = _spot(graph, start, p, d, column, ROWS)
        weight = tl.load(degree + graph * p + row, mask=row < p, other=0.0)
        first += weight[:, None] * tl.load(sender + offset, mask=inside, other=0.0)
        second += weight[:, None] * tl.load(receiver + offset, mask=inside, other=0.0)
        count += weight
    edges = tl.sum(count, 0)
    mean, other = (tl.sum(first, 0) / edges)[None, :], (tl.sum(second, 0) / edges)[None, :]
    for start in range(0, p, ROWS):
        offset, inside, row = _spot(graph, start, p, d, column, ROWS)
        value = tl.load(sender + offset, mask=inside, other=0.0)
        tl.store(left + offset, value - mean, mask=inside)
        value = tl.load(receiver + offset, mask=inside, other=0.0)
        tl.store(right + offset, value - other, mask=inside)


@triton.jit
def _scale(
    left, right, heard, degree, keep, to_sender, to_receiver, variance, p, d, epsilon,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """The variance over edges, and both sides divided by its root."""
    graph = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    count = tl.zeros((ROWS,), tl.float32)
    for start in range(0, p, ROWS):
        offset, inside, row = _spot(graph, start, p, d, column, ROWS)
        weight = tl.load(degree + graph * p + row, mask=row < p, other=0.0)
        one = tl.load(left + offset, mask=inside, other=0.0)
        two = tl.load(right + offset, mask=inside, other=0.0)
        both = tl.load(heard + offset, mask=inside, other=0.0)
        total += weight[:, None] * (one * one + two * two) + 2.0 * one * both
        count += weight
    # Rounding may leave a number just below zero where all edges are alike.
    spread = tl.maximum(tl.sum(total, 0) / tl.sum(count, 0), 0.0)
    own = graph * d + column
    tl.store(variance + own, spread, mask=column < d)
    scale = tl.load(keep + own, mask=column < d, other=0.0) / tl.sqrt(spread + epsilon)
    for start in range(0, p, ROWS):
        offset, inside, row = _spot(graph, start, p, d, column, ROWS)
        value = tl.load(left + offset, mask=inside, other=0.0)
        tl.store(to_sender + offset, value * scale[None, :], mask=inside)
        value = tl.load(right + offset, mask=inside, other=0.0)
        tl.store(to_receiver + offset, value * scale[None, :], mask=inside)


@triton.jit
def _backward(
    left, right, heard, said, degree, keep, variance, sent, received, to_sender, to_receiver,
    p, d, epsilon, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    first = tl.zeros((ROWS, COLUMNS), tl.float32)
    second = tl.zeros((ROWS, COLUMNS), tl.float32)
    count = tl.zeros((ROWS,), tl.float32)
    for start in range(0, p, ROWS):
        offset, inside, row = _spot(graph, start, p, d, column, ROWS)
        count += tl.load(degree + graph * p + row, mask=row < p, other=0.0)
        above = tl.load(sent + offset, mask=inside, other=0.0)
        product += above * tl.load(left + offset, mask=inside, other=0.0)
        first += above
        above = tl.load(received + offset, mask=inside, other=0.0)
        product += above * tl.load(right + offset, mask=inside, other=0.0)
        second += above
    edges = tl.sum(count, 0)
    own = graph * d + column
    kept = tl.load(keep + own, mask=column < d, other=0.0)
    inverse = 1.0 / tl.sqrt(tl.load(variance + own, mask=column < d, other=1.0) + epsilon)
    scale = (kept * inverse)[None, :]
    # The variance has no slope along the means: distances from them add up to zero.
    slope = (-tl.sum(product, 0) * kept * inverse * inverse * inverse / edges)[None, :]
    mean, other = (tl.sum(first, 0) / edges)[None, :], (tl.sum(second, 0) / edges)[None, :]
    for start in range(0, p, ROWS):
        offset, inside, row = _spot(graph, start, p, d, column, ROWS)
        weight = tl.load(degree + graph * p + row, mask=row < p, other=0.0)[:, None]
        above = tl.load(sent + offset, mask=inside, other=0.0) - weight * mean
        spread = weight * tl.load(left + offset, mask=inside, other=0.0)
        spread += tl.load(heard + offset, mask=inside, other=0.0)
        tl.store(to_sender + offset, above * scale + spread * slope, mask=inside)
        above = tl.load(received + offset, mask=inside, other=0.0) - weight * other
        spread = weight * tl.load(right + offset, mask=inside, other=0.0)
        spread += tl.load(said + offset, mask=inside, other=0.0)
        tl.store(to_receiver + offset, above * scale + spread * slope, mask=inside)


def _sizes(side: Tensor) -> tuple[tuple[int, int], int, int, dict[str, int]]:
    """The grid, P, D, and the size of a tile."""
    p, d = side.shape[-2:]
    columns = min(COLUMNS, power_of_2(d))
    grid = (side.numel() // (p * d), triton.cdiv(d, columns))
    return grid, p, d, {"ROWS": ROWS, "COLUMNS": columns}


class EdgeNorm(Fused):
    """Sides (*folds, B, P, D), degree (*folds, B, P), symmetric mask, keep (*folds, B, D).

    Gives both sides, and what backward reads: the centred sides, what nodes hear of the right one,
    and the variance (*folds, B, D).
    """

    results = 2

    @staticmethod
    def run(sender, receiver, degree, mask, keep, epsilon):
        grid, p, d, tile = _sizes(sender)
        left, right = torch.empty_like(sender), torch.empty_like(sender)
        _centre[grid](sender, receiver, degree, left, right, p, d, **tile)
        heard = mask @ right
        one, two, variance = (torch.empty_like(part) for part in (sender, sender, keep))
        _scale[grid](left, right, heard, degree, keep, one, two, variance, p, d, epsilon, **tile)
        return one, two, left, right, heard, variance

    @staticmethod
    def keep(inputs, output):
        *_, degree, mask, keep, epsilon = inputs
        return degree, mask, keep, *output[2:], epsilon

    @staticmethod
    def slopes(sent, received, degree, mask, keep, left, right, heard, variance, epsilon):
        grid, p, d, tile = _sizes(left)
        one, two = torch.empty_like(left), torch.empty_like(left)
        _backward[grid](
            left, right, heard, mask @ left, degree, keep, variance, sent, received, one, two,
            p, d, epsilon, **tile,
        )  # fmt: skip
        return one, two
