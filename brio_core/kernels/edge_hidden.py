"""``W drop(relu(s_i + r_j))`` of listed edges: the first layer lives in registers only.

Forward, a program makes some edges of one graph, and notes with one bit which units of the first
layer are heard. Backward, one kernel sums what every node gets, by a product with ones and zeros,
and another what the weights get. Both read the bits instead of drawing dropout again. Nothing is
added by atomics.

Where products may be less exact than float32, their factors are float16: it rounds as TF32 does,
and takes half the bytes. It ends at 65,504, which sides that are normalised do not reach. Gradients
are small, so those of a graph are scaled by their largest.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2, row_tile
from brio_core.kernels.uniform import keeps

# Bits of a word.
WORD = tl.constexpr(32)
# Edges, units and (on the way back) nodes of a tile, warps per program, and loads under way.
FORWARD = {"EDGES": 64, "UNITS": 32, "num_warps": 4, "num_stages": 1}
TO_NODES = {"EDGES": 64, "UNITS": 64, "NODES": 16, "num_warps": 4, "num_stages": 1}
TO_WEIGHT = {"EDGES": 64, "UNITS": 64, "num_warps": 4, "num_stages": 1}
# With float32 factors less fits into registers.
EXACT = {"EDGES": 32, "UNITS": 32, "NODES": 16, "num_warps": 4, "num_stages": 1}
# Numbers in a tile of gradients that become factors, and the largest of them. Float16 rounds well
# down to 6e-5, and must not overflow where absolutes of a column of the weights add up to 256.
TILE, LARGEST = 2048, 256


@triton.jit
def _part_of(parts):
    """Which of a graph's parts a program makes, and the graph; programs side by side share it.

    So its nodes stay in the cache that all of them have.
    """
    program = tl.program_id(0)
    return program % parts, (program // parts).to(tl.int64)


@triton.jit
def _forward(
    sender, receiver, weight, keys, pairs, out, heard, batch, p, places, D, d, rate,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    part, graph = _part_of(tl.cdiv(places, EDGES))
    fold = graph // batch
    key = tl.load(keys + fold).to(tl.uint32)
    place, column = part * EDGES + tl.arange(0, EDGES), tl.arange(0, WIDTH)
    flat = tl.load(pairs + graph * places + place, mask=place < places, other=0).to(tl.int32)
    left = sender + (graph * p + flat // p)[:, None] * D
    right = receiver + (graph * p + flat % p)[:, None] * D
    weight += fold * d * D
    # Dropout counts places from the fold's first.
    drawn = (graph % batch * places + place).to(tl.uint32)[:, None] * D
    lane = tl.arange(0, UNITS)
    bit = 1 << (lane % WORD)
    words = tl.cdiv(D, WORD)
    total = tl.zeros((EDGES, WIDTH), tl.float32)
    # Empty places are the last of both directions.
    if tl.max(flat, 0) > 0:
        for start in range(0, D, UNITS):
            unit = start + lane
            inside = (flat > 0)[:, None] & (unit < D)[None, :]
            value = tl.load(left + unit[None, :], mask=inside, other=0.0)
            value += tl.load(right + unit[None, :], mask=inside, other=0.0)
            value = tl.maximum(value, 0.0)
            if DROP:
                value = tl.where(keeps(drawn + unit.to(tl.uint32)[None, :], key, rate), value, 0.0)
            bits = tl.where(value > 0, bit[None, :], 0)
            bits = tl.sum(tl.reshape(bits, (EDGES, UNITS // WORD, WORD)), 2)
            word = start // WORD + tl.arange(0, UNITS // WORD)
            target = heard + (graph * places + place)[:, None] * words + word[None, :]
            tl.store(target, bits, mask=(place < places)[:, None] & (word < words)[None, :])
            matrix = tl.load(
                weight + column[None, :] * D + unit[:, None],
                mask=(column < d)[None, :] & (unit < D)[:, None], other=0.0,
            )  # fmt: skip
            total += tl.dot(value.to(matrix.dtype), matrix, input_precision=PRECISION)
    inside = (place < places)[:, None] & (column < d)[None, :]
    target = out + (graph * places + place)[:, None] * d + column[None, :]
    tl.store(target, total / (1.0 - rate), mask=inside)


@triton.jit
def _divide(
    grad, scales, pairs, out, places, d, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Gradients of some edges as factors; empty places stay undefined."""
    graph = tl.program_id(0).to(tl.int64)
    place, column = tl.program_id(1) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    listed = tl.load(pairs + graph * places + place, mask=place < places, other=0) > 0
    inside = listed[:, None] & (column < d)[None, :]
    offset = (graph * places + place)[:, None] * d + column[None, :]
    value = tl.load(grad + offset, mask=inside, other=0.0) / tl.load(scales + graph)
    tl.store(out + offset, value.to(out.dtype.element_ty), mask=inside)


@triton.jit
def _heard(words, place, listed, tile, D, UNITS: tl.constexpr):
    """Which of a tile's units of the first layer are heard by some edges, (edges, units)."""
    lane = tl.arange(0, UNITS)
    found = tl.zeros((place.shape[0], UNITS), tl.int32)
    for index in tl.static_range(UNITS // WORD):
        number = tile * (UNITS // WORD) + index
        there = listed & (number < tl.cdiv(D, WORD))
        word = tl.load(words + place * tl.cdiv(D, WORD) + number, mask=there, other=0)
        found = tl.where((lane // WORD == index)[None, :], word[:, None], found)
    return (found >> (lane % WORD)[None, :]) & 1 > 0


@triton.jit
def _to_nodes(
    grad, scales, weight, heard, pairs, order, starts, to_sender, to_receiver,
    batch, p, places, D, d, rate, PRECISION: tl.constexpr,
    EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
):  # fmt: skip
    """Sums over the edges that some nodes send, or over those that they receive."""
    groups = tl.cdiv(p, NODES)
    part, graph = _part_of(2 * groups * tl.cdiv(D, UNITS))
    back, group, tile = part % 2 > 0, part // 2 % groups, part // 2 // groups
    unit, column = tile * UNITS + tl.arange(0, UNITS), tl.arange(0, WIDTH)
    node = group * NODES + tl.arange(0, NODES)
    matrix = tl.load(
        weight + graph // batch * d * D + column[:, None] * D + unit[None, :],
        mask=(column < d)[:, None] & (unit < D)[None, :], other=0.0,
    )  # fmt: skip
    grad += graph * places * d
    heard += graph * places * tl.cdiv(D, WORD)
    pairs += graph * places
    order += graph * places
    starts += graph * (p + 1)
    total = tl.zeros((NODES, UNITS), tl.float32)
    last = tl.load(starts + tl.minimum((group + 1) * NODES, p))
    for start in range(tl.load(starts + group * NODES), last, EDGES):
        step = start + tl.arange(0, EDGES)
        listed = step < last
        place = tl.load(order + step, mask=listed, other=0)
        owner = tl.load(pairs + place, mask=listed, other=0).to(tl.int32) // p
        # The edges that a node receives are the way back of those that it sends.
        turned = tl.where(place < places // 2, place + places // 2, place - places // 2)
        place = tl.where(back, turned, place)
        above = tl.load(
            grad + place[:, None] * d + column[None, :],
            mask=listed[:, None] & (column < d)[None, :], other=0.0,
        )  # fmt: skip
        slope = tl.dot(above, matrix, input_precision=PRECISION)
        slope = tl.where(_heard(heard, place, listed, tile, D, UNITS), slope, 0.0)
        belongs = (owner[None, :] == node[:, None]) & listed[None, :]
        slope, belongs = slope.to(matrix.dtype), belongs.to(matrix.dtype)
        total += tl.dot(belongs, slope, input_precision=PRECISION)
    total *= tl.load(scales + graph) / (1.0 - rate)
    target = (graph * p + node)[:, None] * D + unit[None, :]
    inside = (node < p)[:, None] & (unit < D)[None, :]
    if back:
        tl.store(to_receiver + target, total, mask=inside)
    else:
        tl.store(to_sender + target, total, mask=inside)


@triton.jit
def _to_weight(
    grad, scales, sender, receiver, heard, pairs, to_weight, batch, p, places, D, d, rate,
    PRECISION: tl.constexpr, EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """What one graph adds to the gradient of some columns of the weights."""
    tile, graph = _part_of(tl.cdiv(D, UNITS))
    unit, column = tile * UNITS + tl.arange(0, UNITS), tl.arange(0, WIDTH)
    sender += graph * p * D
    receiver += graph * p * D
    grad += graph * places * d
    heard += graph * places * tl.cdiv(D, WORD)
    pairs += graph * places
    total = tl.zeros((WIDTH, UNITS), tl.float32)
    for start in range(0, places, EDGES):
        place = start + tl.arange(0, EDGES)
        flat = tl.load(pairs + place, mask=place < places, other=0).to(tl.int32)
        if tl.max(flat, 0) > 0:
            listed = flat > 0
            above = tl.load(
                grad + place[:, None] * d + column[None, :],
                mask=listed[:, None] & (column < d)[None, :], other=0.0,
            )  # fmt: skip
            inside = listed[:, None] & (unit < D)[None, :]
            left = sender + (flat // p)[:, None] * D + unit[None, :]
            right = receiver + (flat % p)[:, None] * D + unit[None, :]
            value = tl.load(left, mask=inside, other=0.0).to(tl.float32)
            value += tl.load(right, mask=inside, other=0.0).to(tl.float32)
            value = tl.where(_heard(heard, place, listed, tile, D, UNITS), value, 0.0)
            total += tl.dot(tl.trans(above), value.to(above.dtype), input_precision=PRECISION)
    total *= tl.load(scales + graph) / (1.0 - rate)
    target = to_weight + (graph * d + column)[:, None] * D + unit[None, :]
    tl.store(target, total, mask=(column < d)[:, None] & (unit < D)[None, :])


def _exact() -> bool:
    return torch.get_float32_matmul_precision() == "highest"


def _factor() -> torch.dtype:
    return torch.float32 if _exact() else torch.float16


def _tile(chosen: dict[str, int], width: int) -> dict[str, int]:
    """The tile of a kernel, no wider than the first layer."""
    tile = chosen | {name: EXACT[name] for name in chosen if _exact()}
    return tile | {"UNITS": max(WORD.value, min(tile["UNITS"], power_of_2(width)))}


def _launch(kernel, parts: int, tile, inputs, pairs, starts: Tensor, weight: Tensor, rate, **more):
    """Run a kernel with ``parts`` programs per graph."""
    d, width = weight.shape[-2:]
    sizes = (pairs.shape[-2], starts.shape[-1] - 1, pairs.shape[-1], width, d)
    kernel[(pairs.numel() // pairs.shape[-1] * parts,)](
        *inputs, *sizes, rate, PRECISION="ieee" if _exact() else "tf32",
        WIDTH=max(16, power_of_2(d)), **tile, **more,
    )  # fmt: skip


class EdgeHidden(Fused):
    """Sides (*F, B, P, D), W (*F, d, D), keys (*F), lists (*F, B, .) to (*F, B, 2E, d).

    Also one bit for each unit of the first layer, in words.
    """

    @staticmethod
    def run(sender, receiver, weight, key, pairs, order, starts, rate):
        width = weight.shape[-1]
        out = sender.new_empty(*pairs.shape, weight.shape[-2])
        heard = out.new_empty(*pairs.shape, triton.cdiv(width, WORD.value), dtype=torch.int32)
        tile = _tile(FORWARD, width)
        parts = triton.cdiv(pairs.shape[-1], tile["EDGES"])
        # Sides stay as they are: which units are heard must not depend on how products round.
        inputs = (sender, receiver, weight.to(_factor()), key, pairs, out, heard)
        _launch(_forward, parts, tile, inputs, pairs, starts, weight, rate, DROP=rate > 0)
        return out, heard

    @staticmethod
    def keep(inputs, output):
        return *inputs[:3], output[1], *inputs[4:]

    @staticmethod
    def slopes(grad, sender, receiver, weight, heard, pairs, order, starts, rate):
        d, width = weight.shape[-2:]
        graphs = pairs.shape[:-1]
        sender, receiver, weight = (given.to(_factor()) for given in (sender, receiver, weight))
        largest = torch.linalg.vector_norm(grad.flatten(-2), torch.inf, -1)
        scale = largest.where(largest > 0, 1) / LARGEST
        divided, tile = weight.new_empty(grad.shape), row_tile(d, TILE)
        grid = (scale.numel(), triton.cdiv(pairs.shape[-1], tile["ROWS"]))
        _divide[grid](grad, scale, pairs, divided, pairs.shape[-1], d, **tile)
        to_sender, to_receiver = scale.new_empty(2, *sender.shape).unbind(0)
        tile = _tile(TO_NODES, width)
        parts = 2 * triton.cdiv(sender.shape[-2], tile["NODES"]) * triton.cdiv(width, tile["UNITS"])
        inputs = (divided, scale, weight, heard, pairs, order, starts, to_sender, to_receiver)
        _launch(_to_nodes, parts, tile, inputs, pairs, starts, weight, rate)
        to_weight = scale.new_empty(*graphs, d, width)
        tile = _tile(TO_WEIGHT, width)
        inputs = (divided, scale, sender, receiver, heard, pairs, to_weight)
        parts = triton.cdiv(width, tile["UNITS"])
        _launch(_to_weight, parts, tile, inputs, pairs, starts, weight, rate)
        # Graphs are summed in a fixed order, so the result is the same in every run.
        return to_sender, to_receiver, to_weight.sum(-3)
