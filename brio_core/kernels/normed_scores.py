"""``w . drop(relu(norm(W drop(relu(s_i + r_j)))))`` of listed edges, normed over a graph's edges.

What is inside the norm is made by :mod:`brio_core.kernels.edge_hidden`, with moments of its tiles.
It is kept as what products round to: float16, unless they are exact. Its rounding is as large as
theirs, and it stays below 65,504 while absolutes of a row of W add up to less than 300: a unit of
the first layer is normalised, so of N edges none is above the root of N, 105 of 11,000.

Which units are heard is kept as bits. The gradient of what is inside is written as factors, scaled
by a bound that is known before they are.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.edge_back import backward, place_of, rounded
from brio_core.kernels.edge_hidden import forward, tile_of
from brio_core.kernels.functions import LARGEST, SMALLEST, Fused, power_of_2
from brio_core.kernels.uniform import folded, keeps

WORD = tl.constexpr(32)
# Numbers in a tile, which are some edges and all units: forward, and on the way back. A program
# that sums takes some tiles. CUDA allows 65,535 tiles of a graph: enough for a quarter of the edges
# of 1,000 regions with 256 units, and for all with 64.
FORWARD, TILE, ROUNDS = 4096, 2048, 16
EPSILON = 1e-5


@triton.jit
def _moments(
    parts, starts, mean, inverse, p, most, epsilon,
    d: tl.constexpr, EDGES: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Means and inverse deviations of a graph, from means and squares of its tiles."""
    graph, column = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    count = tl.load(starts + graph * (p + 1) + p)
    parts += graph * most * 2 * d
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for start in range(0, tl.cdiv(count, EDGES), PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part * EDGES < count)[:, None] & (column < d)[None, :]
        found = tl.load(parts + part[:, None] * 2 * d + column[None, :], mask=inside, other=0.0)
        total += found * tl.minimum(count - part * EDGES, EDGES).to(tl.float32)[:, None]
    centre = tl.sum(total, 0) / tl.maximum(count, 1)
    total = tl.zeros((PARTS, COLUMNS), tl.float32)
    for start in range(0, tl.cdiv(count, EDGES), PARTS):
        part = start + tl.arange(0, PARTS)
        inside = (part * EDGES < count)[:, None] & (column < d)[None, :]
        offset = part[:, None] * 2 * d + column[None, :]
        away = tl.load(parts + offset, mask=inside, other=0.0) - centre[None, :]
        size = tl.minimum(count - part * EDGES, EDGES).to(tl.float32)[:, None]
        squares = tl.load(parts + offset + d, mask=inside, other=0.0)
        total += tl.where(inside, squares + away * away * size, 0.0)
    variance = tl.sum(total, 0) / tl.maximum(count, 1)
    tl.store(mean + graph * d + column, centre, mask=column < d)
    tl.store(inverse + graph * d + column, 1.0 / tl.sqrt(variance + epsilon), mask=column < d)


@triton.jit
def _normed(
    hidden, mean, inverse, graph, place, listed, places, d: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Some edges of a graph, normalised; zero where none is listed."""
    column = tl.arange(0, COLUMNS)
    here = column < d
    inside = listed[:, None] & here[None, :]
    offset = (graph * places + place)[:, None] * d + column[None, :]
    value = tl.load(hidden + offset, mask=inside, other=0.0).to(tl.float32)
    value -= tl.load(mean + graph * d + column, mask=here, other=0.0)[None, :]
    value *= tl.load(inverse + graph * d + column, mask=here, other=0.0)[None, :]
    return tl.where(inside, value, 0.0)


@triton.jit
def _scores(
    hidden, weight, mean, inverse, keys, starts, out, through, batch, p, places,
    d: tl.constexpr, rate: tl.constexpr, KEEP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    step, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    count = tl.load(starts + graph * (p + 1) + p)
    place, listed = place_of(step, count, places), step < count
    total = tl.zeros((ROWS,), tl.float32)
    if tl.program_id(1) * ROWS < count:
        value = _normed(hidden, mean, inverse, graph, place, listed, places, d, COLUMNS)
        value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
        if rate > 0:
            key = folded(tl.load(keys + graph // batch), graph % batch * places + place)
            value = tl.where(keeps(column[None, :], key[:, None], rate), value, 0.0)
            if KEEP:
                bits = tl.where(value > 0, (1 << (column % WORD))[None, :], 0)
                bits = tl.sum(tl.reshape(bits, (ROWS, COLUMNS // WORD, WORD)), 2)
                word = tl.arange(0, COLUMNS // WORD)
                target = (graph * places + place)[:, None] * (COLUMNS // WORD) + word[None, :]
                tl.store(through + target, bits, mask=listed[:, None])
        scale = tl.load(weight + graph // batch * d + column, mask=column < d, other=0.0)
        total = tl.sum(value * (scale / (1.0 - rate))[None, :], 1)
    tl.store(out + graph * places + place, total, mask=step < places)


@triton.jit
def _slope(
    value, grad, through, graph, place, listed, places, rate: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """The gradient before the ReLU, where the weights are one, and that of the scores."""
    above = tl.load(grad + graph * places + place, mask=listed, other=0.0) / (1.0 - rate)
    slope = tl.where(value > 0, above[:, None], 0.0)
    if rate > 0:
        column = tl.arange(0, COLUMNS)
        words = through + (graph * places + place) * (COLUMNS // WORD)
        found = tl.zeros((place.shape[0], COLUMNS), tl.int32)
        for index in tl.static_range(COLUMNS // WORD):
            word = tl.load(words + index, mask=listed, other=0)
            found = tl.where((column // WORD == index)[None, :], word[:, None], found)
        slope = tl.where(found & (1 << (column % WORD))[None, :] != 0, slope, 0.0)
    return slope, above


@triton.jit
def _reduce(
    grad, hidden, mean, inverse, through, starts, sums, products, peaks, p, places,
    d: tl.constexpr, rate: tl.constexpr, ROUNDS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    count = tl.load(starts + graph * (p + 1) + p)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    peak = tl.zeros((ROWS,), tl.float32)
    first = part * ROUNDS * ROWS
    for start in range(first, tl.minimum(count, first + ROUNDS * ROWS), ROWS):
        step = start + tl.arange(0, ROWS)
        place, listed = place_of(step, count, places), step < count
        value = _normed(hidden, mean, inverse, graph, place, listed, places, d, COLUMNS)
        slope, above = _slope(value, grad, through, graph, place, listed, places, rate, COLUMNS)
        total += slope
        product += slope * value
        peak = tl.maximum(peak, tl.abs(above))
    column = tl.arange(0, COLUMNS)
    target = (graph * tl.num_programs(1) + part) * d + column
    tl.store(sums + target, tl.sum(total, 0), mask=column < d)
    tl.store(products + target, tl.sum(product, 0), mask=column < d)
    tl.store(peaks + graph * tl.num_programs(1) + part, tl.max(peak, 0))


@triton.jit
def _back(
    grad, hidden, mean, inverse, through, starts, factors, means, along, out, p, places,
    d: tl.constexpr, rate: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of what is inside the norm; empty places stay undefined."""
    graph = tl.program_id(0).to(tl.int64)
    step, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    here = column < d
    count = tl.load(starts + graph * (p + 1) + p)
    if tl.program_id(1) * ROWS < count:
        place, listed = place_of(step, count, places), step < count
        value = _normed(hidden, mean, inverse, graph, place, listed, places, d, COLUMNS)
        result, _ = _slope(value, grad, through, graph, place, listed, places, rate, COLUMNS)
        result -= tl.load(means + graph * d + column, mask=here, other=0.0)[None, :]
        result -= value * tl.load(along + graph * d + column, mask=here, other=0.0)[None, :]
        result *= tl.load(factors + graph * d + column, mask=here, other=0.0)[None, :]
        target = out + (graph * places + place)[:, None] * d + column[None, :]
        tl.store(target, result.to(out.dtype.element_ty), mask=listed[:, None] & here[None, :])


def _launch(hidden: Tensor, numbers: int) -> tuple[tuple[int, int], dict]:
    """Graphs and tiles of a graph, and the tile."""
    places, d = hidden.shape[-2:]
    columns = max(WORD.value, power_of_2(d))
    rows = max(1, numbers // columns)
    grid = (hidden.numel() // (places * d), triton.cdiv(places, rows))
    return grid, {"ROWS": rows, "COLUMNS": columns}


class NormedScores(Fused):
    """Sides (*F, B, P, D), W (*F, d, D), w (*F, d), keys (*F) of both layers and lists to scores.

    Those are (*F, B, 2E). Also what the way back reads: nothing of use unless ``keep`` is set.
    """

    @staticmethod
    def run(sender, receiver, first, last, key, other_key, pairs, order, starts, rate, keep):
        given = (sender, receiver, first, key, pairs, starts, rate)
        hidden, heard, parts = forward(*given, keep, True)
        *_, batch, places, d = hidden.shape
        grid, tile = _launch(hidden, FORWARD)
        mean, inverse = sender.new_empty(2, *pairs.shape[:-1], d).unbind(0)
        edges = tile_of(rate, sender.shape[-1])["EDGES"]
        _moments[grid[:1]](
            parts, starts, mean, inverse, starts.shape[-1] - 1, parts.shape[1], EPSILON, d,
            EDGES=edges, PARTS=16, COLUMNS=tile["COLUMNS"],
        )  # fmt: skip
        out = sender.new_empty(pairs.shape)
        words = tile["COLUMNS"] // WORD.value if keep and rate > 0 else 0
        through = heard.new_empty(*pairs.shape, words, dtype=torch.int32)
        _scores[grid](
            hidden, last, mean, inverse, other_key, starts, out, through, batch,
            starts.shape[-1] - 1, places, d, rounded(rate), KEEP=keep, **tile,
        )  # fmt: skip
        return out, hidden, heard, mean, inverse, through

    @staticmethod
    def keep(inputs, output):
        *given, _, _, pairs, order, starts, rate, _ = inputs
        return *given, *output[1:], pairs, order, starts, rate

    @staticmethod
    def slopes(
        grad, sender, receiver, first, last, hidden, heard, mean, inverse, through, pairs, order,
        starts, rate,
    ):  # fmt: skip
        places, d = hidden.shape[-2:]
        (graphs, parts), tile = _launch(hidden, TILE)
        given = (grad, hidden, mean, inverse, through, starts)
        numbers = (starts.shape[-1] - 1, places, d, rounded(rate))
        parts = triton.cdiv(parts, ROUNDS)
        sums, products = grad.new_empty(2, graphs, parts, d).unbind(0)
        peaks = grad.new_empty(*mean.shape[:-1], parts)
        _reduce[graphs, parts](*given, sums, products, peaks, *numbers, ROUNDS=ROUNDS, **tile)
        # relu(x) = x [x > 0], so the weights' gradient is a sum that the norm needs as well.
        sums, products = (found.sum(1).view_as(mean) for found in (sums, products))
        count = starts[..., -1:].clamp_min(1)
        means, along = sums / count, products / count
        # A normalised number is at most the root of their count.
        bound = peaks.amax(-1, keepdim=True) + means.abs() + along.abs() * count.sqrt()
        factors = last[..., None, :] * inverse
        bound = (bound * factors.abs()).amax(-1)
        reach = first.abs().sum(-2).amax(-1)[..., None].clamp_min(1)
        scale = bound.clamp_min(SMALLEST) * reach / LARGEST
        factors = factors / scale[..., None]
        to_hidden = torch.empty_like(hidden)
        _back[_launch(hidden, TILE)[0]](*given, factors, means, along, to_hidden, *numbers, **tile)
        lists = (pairs, order, starts, rate)
        slopes = backward(to_hidden, scale, sender, receiver, first, heard, *lists)
        return *slopes, products.sum(-2)
