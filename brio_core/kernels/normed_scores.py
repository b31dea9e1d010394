"""``w . drop(relu(norm(z)))`` of listed edges, normalised over the edges of a graph.

A program takes a graph, and of a wide layer a tile of units; nothing but scores is written.
"""

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused, row_tile
from brio_core.kernels.uniform import keeps

# Numbers in a tile: some edges, and all units.
TILE, WARPS = 2048, 4
EPSILON = 1e-5


@triton.jit
def _tile(hidden, pairs, start, column, places, d, ROWS: tl.constexpr):
    """Some edges of a graph, and which numbers of the tile are there."""
    place = start + tl.arange(0, ROWS)
    flat = tl.load(pairs + place, mask=place < places, other=0)
    inside = (flat > 0)[:, None] & (column < d)[None, :]
    value = tl.load(hidden + place[:, None] * d + column[None, :], mask=inside, other=0.0)
    return value, place, inside


@triton.jit
def _kept(place, column, first_place, d, key, rate, DROP: tl.constexpr):
    """What dropout multiplies with."""
    factor = tl.full((place.shape[0], column.shape[0]), 1.0, tl.float32)
    if DROP:
        position = (first_place + place).to(tl.uint32)[:, None] * d
        kept = keeps(position + column.to(tl.uint32)[None, :], key, rate)
        factor = tl.where(kept, 1.0 / (1.0 - rate), 0.0)
    return factor


@triton.jit
def _forward(
    hidden, weight, keys, pairs, out, means, scales, batch, places, d, rate, epsilon,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    fold = graph // batch
    column = tl.arange(0, COLUMNS)
    key = tl.load(keys + fold).to(tl.uint32)
    scale = tl.load(weight + fold * d + column, mask=column < d, other=0.0)
    hidden += graph * places * d
    pairs += graph * places
    out += graph * places
    total = tl.zeros((COLUMNS,), tl.float32)
    count = 0.0
    for start in range(0, places, ROWS):
        value, place, inside = _tile(hidden, pairs, start, column, places, d, ROWS)
        total += tl.sum(value, 0)
        count += tl.sum(tl.max(inside.to(tl.float32), 1), 0)
    count = tl.maximum(count, 1.0)
    mean = total / count
    squares = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, places, ROWS):
        value, place, inside = _tile(hidden, pairs, start, column, places, d, ROWS)
        centred = tl.where(inside, value - mean[None, :], 0.0)
        squares += tl.sum(centred * centred, 0)
    inverse = 1 / tl.sqrt(squares / count + epsilon)
    for start in range(0, places, ROWS):
        value, place, inside = _tile(hidden, pairs, start, column, places, d, ROWS)
        normed = tl.where(inside, (value - mean[None, :]) * inverse[None, :], 0.0)
        kept = _kept(place, column, graph % batch * places, d, key, rate, DROP)
        heard = tl.maximum(normed, 0.0) * kept
        tl.store(out + place, tl.sum(heard * scale[None, :], 1), mask=place < places)
    tl.store(means + graph * d + column, mean, mask=column < d)
    tl.store(scales + graph * d + column, inverse, mask=column < d)


@triton.jit
def _backward(
    grad, hidden, weight, keys, pairs, means, scales, to_hidden, to_weight,
    batch, places, d, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    fold = graph // batch
    column = tl.arange(0, COLUMNS)
    key = tl.load(keys + fold).to(tl.uint32)
    scale = tl.load(weight + fold * d + column, mask=column < d, other=0.0)
    mean = tl.load(means + graph * d + column, mask=column < d, other=0.0)
    inverse = tl.load(scales + graph * d + column, mask=column < d, other=0.0)
    hidden += graph * places * d
    to_hidden += graph * places * d
    pairs += graph * places
    grad += graph * places
    slopes = tl.zeros((COLUMNS,), tl.float32)
    along = tl.zeros((COLUMNS,), tl.float32)
    count = 0.0
    for start in range(0, places, ROWS):
        value, place, inside = _tile(hidden, pairs, start, column, places, d, ROWS)
        normed = tl.where(inside, (value - mean[None, :]) * inverse[None, :], 0.0)
        kept = _kept(place, column, graph % batch * places, d, key, rate, DROP)
        above = tl.load(grad + place, mask=place < places, other=0.0)[:, None]
        slope = tl.where(normed > 0, above * kept, 0.0)
        slopes += tl.sum(slope, 0)
        # relu(x) = x [x > 0], so the weights' gradient is the same sum.
        along += tl.sum(slope * normed, 0)
        count += tl.sum(tl.max(inside.to(tl.float32), 1), 0)
    tl.store(to_weight + graph * d + column, along, mask=column < d)
    count = tl.maximum(count, 1.0)
    for start in range(0, places, ROWS):
        value, place, inside = _tile(hidden, pairs, start, column, places, d, ROWS)
        normed = tl.where(inside, (value - mean[None, :]) * inverse[None, :], 0.0)
        kept = _kept(place, column, graph % batch * places, d, key, rate, DROP)
        above = tl.load(grad + place, mask=place < places, other=0.0)[:, None]
        slope = tl.where(normed > 0, above * kept, 0.0)
        slope -= slopes[None, :] / count + normed * (along / count)[None, :]
        result = tl.where(inside, slope * (inverse * scale)[None, :], 0.0)
        stored = (place < places)[:, None] & (column < d)[None, :]
        tl.store(to_hidden + place[:, None] * d + column[None, :], result, mask=stored)


class NormedScores(Fused):
    """Hidden (*F, B, 2E, d), w (*F, d), keys (*F), pairs (*F, B, 2E) to scores (*F, B, 2E).

    Also the means and inverse deviations (*F, B, d) of every graph.
    """

    @staticmethod
    def run(hidden, weight, key, pairs, rate):
        *graphs, places, d = hidden.shape
        out = hidden.new_empty(*graphs, places)
        means, scales = hidden.new_empty(2, *graphs, d).unbind(0)
        _forward[(means.numel() // d,)](
            hidden, weight, key, pairs, out, means, scales, graphs[-1], places, d, rate, EPSILON,
            DROP=rate > 0, **row_tile(d, TILE), num_warps=WARPS,
        )  # fmt: skip
        return out, means, scales

    @staticmethod
    def keep(inputs, output):
        hidden, weight, key, pairs, rate = inputs
        return hidden, weight, key, pairs, *output[1:], rate

    @staticmethod
    def slopes(grad, hidden, weight, key, pairs, means, scales, rate):
        *graphs, places, d = hidden.shape
        to_hidden, to_weight = torch.empty_like(hidden), torch.empty_like(means)
        _backward[(means.numel() // d,)](
            grad, hidden, weight, key, pairs, means, scales, to_hidden, to_weight,
            graphs[-1], places, d, rate, DROP=rate > 0, **row_tile(d, TILE), num_warps=WARPS,
        )  # fmt: skip
        return to_hidden, to_weight.sum(-2)
