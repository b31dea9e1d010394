"""Variance over graphs of every pair's value, from lists of edges: no dense matrix per graph."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused

BLOCK = 256
PLACES = 2048


@triton.jit
def _variance(
    values, slots, variance, mean, count, batch, e, p, size, ALL: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """A program goes through all graphs of a fold for some pairs; ``ALL`` counts absent edges."""
    fold = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    # The other direction stands E places further on.
    half = tl.where(column // p <= column % p, 0, e)
    origin = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    square = tl.zeros((BLOCK,), tl.float32)
    number = tl.zeros((BLOCK,), tl.float32)
    for graph in range(batch):
        row = fold * batch + graph
        slot = tl.load(slots + row * size + column, mask=inside, other=e)
        listed = slot < e
        value = tl.load(values + row * 2 * e + half + slot, mask=listed, other=0.0)
        counted = inside if ALL else listed
        # Distances from any one value lose nothing to cancellation.
        origin = tl.where(counted & (number == 0), value, origin)
        away = tl.where(counted, value - origin, 0.0)
        number += tl.where(counted, 1.0, 0.0)
        total += away
        square += away * away
    shift = total / tl.maximum(number, 1.0)
    spread = tl.maximum(square - total * shift, 0.0) / tl.maximum(number - 1.0, 1.0)
    target = fold * size + column
    tl.store(variance + target, spread, mask=inside)
    tl.store(mean + target, origin + shift, mask=inside)
    tl.store(count + target, number, mask=inside)


@triton.jit
def _backward(values, pairs, mean, slope, out, batch, e, size, PLACES: tl.constexpr):
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * PLACES + tl.arange(0, PLACES)
    inside = place < 2 * e
    pair = tl.load(pairs + graph * 2 * e + place, mask=inside, other=0)
    # Flat index 0 marks a place that is left empty.
    listed = pair > 0
    source = graph // batch * size + pair
    away = tl.load(values + graph * 2 * e + place, mask=inside, other=0.0)
    away -= tl.load(mean + source, mask=listed, other=0.0)
    scale = tl.load(slope + source, mask=listed, other=0.0)
    tl.store(out + graph * 2 * e + place, tl.where(listed, away * scale, 0.0), mask=inside)


class EdgeVariance(Fused):
    """Values (*folds, B, 2E) to variance, mean and count of all pairs, (*folds, P * P) each.

    Over graphs that have the edge, or over all, where an absent edge has the value 0. Mean and
    count are constants.
    """

    @staticmethod
    def run(values, pairs, slots, over_all):
        (*lead, batch, places), size = values.shape, slots.shape[-1]
        folds = values.numel() // (batch * places)
        variance, mean, count = (values.new_empty(*lead, size) for _ in range(3))
        _variance[(folds, triton.cdiv(size, BLOCK))](
            values, slots, variance, mean, count, batch, places // 2, round(size**0.5), size,
            ALL=over_all, BLOCK=BLOCK,
        )  # fmt: skip
        return variance, mean, count

    @staticmethod
    def keep(inputs, output):
        values, pairs, _, _ = inputs
        return values, pairs, *output[1:]

    @staticmethod
    def slopes(grad, values, pairs, mean, count):
        batch, places = values.shape[-2:]
        # The mean moves as well, but distances from it add up to zero.
        slope = 2 * grad / (count - 1).clamp_min(1)
        out = torch.empty_like(values)
        _backward[(values.numel() // places, triton.cdiv(places, PLACES))](
            values, pairs, mean, slope, out, batch, places // 2, mean.shape[-1], PLACES=PLACES
        )
        return out
