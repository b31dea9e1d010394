"""How the values of every pair of nodes vary over graphs, from lists of edges alone."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused

# Pairs that a program works on: few, so that what it reads twice is still in the cache.
PAIRS, PLACES = 256, 1024


@triton.jit
def _value(values, slots, graph, pair, p, places):
    """Values of some pairs in one graph, and where it has them; i < j are sent first."""
    slot = tl.load(slots + graph * p * p + pair, mask=pair < p * p, other=places)
    listed = slot < places
    slot = tl.where(pair // p < pair % p, slot, slot + places)
    return tl.load(values + graph * 2 * places + slot, mask=listed, other=0.0), listed


@triton.jit
def _variance(
    values, slots, variance, mean, count, batch, p, places,
    ZERO: tl.constexpr, PAIRS: tl.constexpr,
):  # fmt: skip
    fold = tl.program_id(1).to(tl.int64)
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    total = tl.zeros((PAIRS,), tl.float32)
    number = tl.zeros((PAIRS,), tl.float32)
    for graph in range(batch):
        value, listed = _value(values, slots, fold * batch + graph, pair, p, places)
        total += value
        number += listed.to(tl.float32)
    if ZERO:
        number = tl.zeros((PAIRS,), tl.float32) + batch
    centre = total / tl.maximum(number, 1.0)
    square = tl.zeros((PAIRS,), tl.float32)
    rest = tl.zeros((PAIRS,), tl.float32)
    for graph in range(batch):
        value, listed = _value(values, slots, fold * batch + graph, pair, p, places)
        away = value - centre
        if not ZERO:
            away = tl.where(listed, away, 0.0)
        square += away * away
        rest += away
    target, inside = fold * p * p + pair, pair < p * p
    tl.store(variance + target, square / tl.maximum(number - 1.0, 1.0), mask=inside)
    # Where all values are equal the gradient is zero only if this mean is exact.
    tl.store(mean + target, centre + rest / tl.maximum(number, 1.0), mask=inside)
    tl.store(count + target, number, mask=inside)


@triton.jit
def _variance_back(
    factor, mean, values, pairs, out, batch, p, places, PLACES: tl.constexpr
):  # fmt: skip
    graph = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    inside = place < 2 * places
    offset = graph * 2 * places + place
    pair = tl.load(pairs + offset, mask=inside, other=0).to(tl.int32)
    listed = pair > 0
    table = graph // batch * p * p + pair
    value = tl.load(values + offset, mask=listed, other=0.0)
    value -= tl.load(mean + table, mask=listed, other=0.0)
    value *= tl.load(factor + table, mask=listed, other=0.0)
    tl.store(out + offset, value, mask=inside)


class PairVariance(Fused):
    """Values (*F, B, 2, E) and lists (*F, B, .) to variances (*F, P * P) over graphs.

    Also means, and how many graphs count: those that have the edge, or all if absent edges are
    ``zero``.
    """

    @staticmethod
    def run(values, pairs, slots, p, zero):
        *folds, batch, _, places = values.shape
        variance, mean, count = (values.new_empty(*folds, p * p) for _ in range(3))
        _variance[(triton.cdiv(p * p, PAIRS), variance.numel() // (p * p))](
            values, slots, variance, mean, count, batch, p, places, ZERO=zero, PAIRS=PAIRS
        )
        return variance, mean, count

    @staticmethod
    def keep(inputs, output):
        return inputs[0], inputs[1], output[1], output[2], inputs[3]

    @staticmethod
    def slopes(grad, values, pairs, mean, count, p):
        batch, places = values.shape[-3], values.shape[-1]
        # The distances from a mean add up to zero, so its own derivative does not matter.
        factor = 2 * grad / (count - 1).clamp_min(1)
        out = torch.empty_like(values)
        _variance_back[(triton.cdiv(2 * places, PLACES), values.numel() // (2 * places))](
            factor, mean, values, pairs, out, batch, p, places, PLACES=PLACES
        )
        return out
