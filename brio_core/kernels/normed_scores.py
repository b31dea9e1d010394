"""``w . drop(relu(norm(z)))`` of listed edges, normalised over the edges of a graph.

Nothing but scores and moments is written. Each way goes through a graph twice: to sum, and to
write what needs the sums.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, row_tile
from brio_core.kernels.norm_relu import Sizes
from brio_core.kernels.uniform import keeps

# Numbers in a tile, which are some edges and all units, and tiles of a program that sums. CUDA
# allows 65,535 tiles of a graph: enough for 1,000 regions and 256 units.
TILE, ROUNDS = 2048, 16
EPSILON = 1e-5


@triton.jit
def _listed(pairs, graph, place, places):
    """Which places hold an edge. Empty ones are the last of both directions."""
    return tl.load(pairs + graph * places + place, mask=place < places, other=0) > 0


@triton.jit
def _normed(
    hidden, mean, inverse, keys, graph, place, listed, batch, places, d, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some edges of a graph, normalised, and what dropout multiplies with."""
    column = tl.arange(0, COLUMNS)
    here = column < d
    inside = listed[:, None] & here[None, :]
    offset = (graph * places + place)[:, None] * d + column[None, :]
    value = tl.load(hidden + offset, mask=inside, other=0.0)
    value -= tl.load(mean + graph * d + column, mask=here, other=0.0)[None, :]
    value *= tl.load(inverse + graph * d + column, mask=here, other=0.0)[None, :]
    kept = tl.full((ROWS, COLUMNS), 1.0, tl.float32)
    if DROP:
        key = tl.load(keys + graph // batch).to(tl.uint32)
        drawn = (graph % batch * places + place).to(tl.uint32)[:, None] * d
        kept = keeps(drawn + column.to(tl.uint32)[None, :], key, rate)
        kept = tl.where(kept, 1.0 / (1.0 - rate), 0.0)
    return tl.where(inside, value, 0.0), kept


@triton.jit
def _scores(
    hidden, weight, mean, inverse, keys, pairs, out, batch, places, d, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    listed = _listed(pairs, graph, place, places)
    total = tl.zeros((ROWS,), tl.float32)
    if tl.max(listed.to(tl.int32), 0) > 0:
        value, kept = _normed(
            hidden, mean, inverse, keys, graph, place, listed, batch, places, d, rate,
            DROP, ROWS, COLUMNS,
        )  # fmt: skip
        scale = tl.load(weight + graph // batch * d + column, mask=column < d, other=0.0)
        total = tl.sum(tl.maximum(value, 0.0) * kept * scale[None, :], 1)
    tl.store(out + graph * places + place, total, mask=place < places)


@triton.jit
def _slope(value, kept, grad, graph, place, listed, places):
    """The gradient before the ReLU, where the weights are one."""
    above = tl.load(grad + graph * places + place, mask=listed, other=0.0)
    return tl.where(value > 0, above[:, None] * kept, 0.0)


@triton.jit
def _reduce(
    grad, hidden, mean, inverse, keys, pairs, sums, products, batch, places, d, rate,
    ROUNDS: tl.constexpr, DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(ROUNDS):
        place = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        listed = _listed(pairs, graph, place, places)
        if tl.max(listed.to(tl.int32), 0) > 0:
            value, kept = _normed(
                hidden, mean, inverse, keys, graph, place, listed, batch, places, d, rate,
                DROP, ROWS, COLUMNS,
            )  # fmt: skip
            slope = _slope(value, kept, grad, graph, place, listed, places)
            total += slope
            product += slope * value
    column = tl.arange(0, COLUMNS)
    target = (graph * tl.num_programs(1) + part) * d + column
    tl.store(sums + target, tl.sum(total, 0), mask=column < d)
    tl.store(products + target, tl.sum(product, 0), mask=column < d)


@triton.jit
def _back(
    grad, hidden, mean, inverse, keys, pairs, weight, means, along, out, batch, places, d, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    here = column < d
    listed = _listed(pairs, graph, place, places)
    result = tl.zeros((ROWS, COLUMNS), tl.float32)
    if tl.max(listed.to(tl.int32), 0) > 0:
        value, kept = _normed(
            hidden, mean, inverse, keys, graph, place, listed, batch, places, d, rate,
            DROP, ROWS, COLUMNS,
        )  # fmt: skip
        result = _slope(value, kept, grad, graph, place, listed, places)
        result -= tl.load(means + graph * d + column, mask=here, other=0.0)[None, :]
        result -= value * tl.load(along + graph * d + column, mask=here, other=0.0)[None, :]
        scale = tl.load(weight + graph // batch * d + column, mask=here, other=0.0)
        scale *= tl.load(inverse + graph * d + column, mask=here, other=0.0)
        result = tl.where(listed[:, None], result * scale[None, :], 0.0)
    target = out + (graph * places + place)[:, None] * d + column[None, :]
    tl.store(target, result, mask=(place < places)[:, None] & here[None, :])


class NormedScores(Fused):
    """Hidden (*F, B, 2E, d), w (*F, d), keys (*F), pairs (*F, B, 2E) to scores (*F, B, 2E).

    Also the means and inverse deviations (*F, B, d) of every graph, and its edges (*F, B, 1).
    """

    @staticmethod
    def run(hidden, weight, key, pairs, rate):
        *graphs, places, d = hidden.shape
        sizes = Sizes(hidden, hidden.numel() // (places * d), pairs > 0)
        mean, variance = (found.view(*graphs, d) for found in sizes.moments(hidden))
        inverse = (variance + EPSILON).rsqrt()
        out = hidden.new_empty(pairs.shape)
        grid, numbers, tile = _launch(hidden, rate)
        _scores[grid](hidden, weight, mean, inverse, key, pairs, out, *numbers, **tile)
        return out, mean, inverse, sizes.count.view(*graphs, 1)

    @staticmethod
    def keep(inputs, output):
        hidden, weight, key, pairs, rate = inputs
        return hidden, weight, key, pairs, *output[1:], rate

    @staticmethod
    def slopes(grad, hidden, weight, key, pairs, mean, inverse, count, rate):
        (graphs, parts), numbers, tile = _launch(hidden, rate)
        given = (grad, hidden, mean, inverse, key, pairs)
        partial = (graphs, triton.cdiv(parts, ROUNDS))
        sums, products = hidden.new_empty(2, *partial, hidden.shape[-1]).unbind(0)
        _reduce[partial](*given, sums, products, *numbers, ROUNDS=ROUNDS, **tile)
        # relu(x) = x [x > 0], so the weights' gradient is a sum that the norm needs as well.
        means, along = (found.sum(1).view_as(mean) for found in (sums, products))
        to_hidden = torch.empty_like(hidden)
        given = (*given, weight, means / count, along / count, to_hidden)
        _back[graphs, parts](*given, *numbers, **tile)
        return to_hidden, along.sum(-2)


def _launch(hidden: Tensor, rate: float) -> tuple[tuple[int, int], tuple, dict]:
    """Graphs and tiles of a graph, the numbers that all kernels get, and the tile."""
    *_, batch, places, d = hidden.shape
    tile = row_tile(d, TILE)
    grid = (hidden.numel() // (places * d), triton.cdiv(places, tile["ROWS"]))
    return grid, (batch, places, d, rate), {"DROP": rate > 0, **tile}
