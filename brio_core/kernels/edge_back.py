"""The way back of ``W drop(relu(s_i + r_j))`` of listed edges, and what both ways share.

One kernel sums what every node gets, by a product with ones and zeros, and another what the weights
get. Both read which units are heard. Nothing is added by atomics.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import exact, factor, power_of_2

# Units of a turn, in which a program goes through the first layer. A byte holds a lane's bits of
# several turns, and four lanes make a word.
LANES = tl.constexpr(32)
# Edges, units and nodes of a tile, warps per program, and loads under way.
TO_NODES = {"EDGES": 64, "UNITS": 128, "NODES": 16, "num_warps": 4, "num_stages": 1}
TO_WEIGHT = {"EDGES": 128, "UNITS": 128, "num_warps": 8, "num_stages": 1}
# With float32 factors less fits into registers.
EXACT = {"EDGES": 32, "UNITS": 32, "NODES": 16, "num_warps": 4, "num_stages": 1}


@triton.jit
def part_of(parts):
    """Which of a graph's parts a program makes, and the graph; programs side by side share it.

    So its nodes stay in the cache that all of them have.
    """
    program = tl.program_id(0)
    return program % parts, (program // parts).to(tl.int64)


@triton.jit
def place_of(step, count, places):
    """Places of a graph, those of its ``count`` edges first.

    Both directions fill their half of the places from its beginning.
    """
    edges, empty = count // 2, places // 2 - count // 2
    listed = tl.where(step < edges, step, step + empty)
    behind = step - count
    return tl.where(step < count, listed, behind + tl.where(behind < empty, edges, count))


@triton.jit
def _units(tile, TURNS: tl.constexpr, UNITS: tl.constexpr):
    """The units of a tile, those of one word side by side, and their bits in it."""
    column = tile * UNITS + tl.arange(0, UNITS)
    word, turn = column // (4 * TURNS), column % (4 * TURNS) // 4
    unit = (word // 8 * TURNS + turn) * LANES + word % 8 * 4 + column % 4
    # Four lie side by side, which the compiler has to be told.
    unit = tl.max_contiguous(tl.multiple_of(unit, 4), 4)
    return unit, 1 << (column % 4 * 8 + TURNS - 1 - turn)


@triton.jit
def _heard(
    words, place, tile, bit, D: tl.constexpr, TURNS: tl.constexpr, UNITS: tl.constexpr
):  # fmt: skip
    """Which units of a tile are heard by some edges, (edges, units)."""
    size: tl.constexpr = tl.cdiv(D, LANES * TURNS) * 8
    group: tl.constexpr = UNITS // (4 * TURNS)
    found = tl.zeros((place.shape[0], UNITS), tl.int32)
    for index in tl.static_range(group):
        word = tl.load(words + place * size + tile * group + index)
        found = tl.where(
            (tl.arange(0, UNITS) // (4 * TURNS) == index)[None, :], word[:, None], found
        )
    return found & bit[None, :] != 0


@triton.jit
def _to_nodes(
    grad, scales, weight, heard, pairs, order, starts, to_sender, to_receiver, batch, p, places,
    D: tl.constexpr, d: tl.constexpr, rate: tl.constexpr, TURNS: tl.constexpr,
    PRECISION: tl.constexpr, EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
    NODES: tl.constexpr,
):  # fmt: skip
    """Sums over the edges that some nodes send, or over those that they receive."""
    groups = tl.cdiv(p, NODES)
    part, graph = part_of(2 * groups * (tl.cdiv(D, LANES * TURNS) * LANES * TURNS // UNITS))
    back, group, tile = part % 2 > 0, part // 2 % groups, part // 2 // groups
    column = tl.arange(0, WIDTH)
    unit, bit = _units(tile, TURNS, UNITS)
    node = group * NODES + tl.arange(0, NODES)
    matrix = tl.load(
        weight + graph // batch * d * D + column[:, None] * D + unit[None, :],
        mask=(column < d)[:, None] & (unit < D)[None, :], other=0.0,
    )  # fmt: skip
    grad += graph * places * d
    heard += graph * places * (tl.cdiv(D, LANES * TURNS) * 8)
    pairs += graph * places
    order += graph * places
    starts += graph * (p + 1)
    # Zero, which the compiler must not know: else it rounds before it chooses, one by one.
    nothing = tl.minimum(batch, 0).to(tl.float32)
    total = tl.zeros((NODES, UNITS), tl.float32)
    last = tl.load(starts + tl.minimum((group + 1) * NODES, p))
    for start in range(tl.load(starts + group * NODES), last, EDGES):
        step = start + tl.arange(0, EDGES)
        # What is behind the last belongs to nobody, and reads what the last edge does.
        place = tl.load(order + tl.minimum(step, last - 1))
        owner = tl.load(pairs + place).to(tl.int32) // p
        owner = tl.where(step < last, owner, -1)
        # The edges that a node receives are the way back of those that it sends.
        turned = tl.where(place < places // 2, place + places // 2, place - places // 2)
        place = tl.where(back, turned, place)
        above = tl.load(
            grad + place[:, None] * d + column[None, :], mask=(column < d)[None, :], other=0.0
        )
        slope = tl.dot(above, matrix, input_precision=PRECISION)
        slope = tl.where(_heard(heard, place, tile, bit, D, TURNS, UNITS), slope, nothing)
        belongs = (owner[None, :] == node[:, None]).to(matrix.dtype)
        total += tl.dot(belongs, slope.to(matrix.dtype), input_precision=PRECISION)
    total *= tl.load(scales + graph) / (1.0 - rate)
    target = (graph * p + node)[:, None] * D + unit[None, :]
    inside = (node < p)[:, None] & (unit < D)[None, :]
    if back:
        tl.store(to_receiver + target, total, mask=inside)
    else:
        tl.store(to_sender + target, total, mask=inside)


@triton.jit
def _to_weight(
    grad, scales, sender, receiver, heard, pairs, starts, to_weight, batch, p, places,
    D: tl.constexpr, d: tl.constexpr, rate: tl.constexpr, TURNS: tl.constexpr,
    PRECISION: tl.constexpr, EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """What one graph adds to the gradient of some columns of the weights."""
    tile, graph = part_of(tl.cdiv(D, UNITS))
    unit, column = tile * UNITS + tl.arange(0, UNITS), tl.arange(0, WIDTH)
    span: tl.constexpr = LANES * TURNS
    lane, bit = unit // span * LANES + unit % LANES, 1 << (TURNS - 1 - unit % span // LANES)
    sender += graph * p * D
    receiver += graph * p * D
    grad += graph * places * d
    heard += graph * places * (tl.cdiv(D, span) * LANES)
    pairs += graph * places
    count = tl.load(starts + graph * (p + 1) + p)
    nothing = tl.minimum(batch, 0).to(tl.float32)
    total = tl.zeros((WIDTH, UNITS), tl.float32)
    for start in range(0, count, EDGES):
        step = start + tl.arange(0, EDGES)
        place = place_of(tl.minimum(step, count - 1), count, places)
        flat = tl.load(pairs + place).to(tl.int32)
        above = tl.load(
            grad + place[:, None] * d + column[None, :],
            mask=(step < count)[:, None] & (column < d)[None, :], other=0.0,
        )  # fmt: skip
        left, right = (
            (flat // p * D)[:, None] + unit[None, :],
            (flat % p * D)[:, None] + unit[None, :],
        )
        bits = tl.load(heard + place[:, None] * (tl.cdiv(D, span) * LANES) + lane[None, :])
        if D // span * span == D:
            value = tl.load(sender + left).to(tl.float32) + tl.load(receiver + right).to(tl.float32)
        else:
            inside = (unit < D)[None, :]
            value = tl.load(sender + left, mask=inside, other=0.0).to(tl.float32)
            value += tl.load(receiver + right, mask=inside, other=0.0).to(tl.float32)
        value = tl.where((bits.to(tl.int32) & bit[None, :]) != 0, value, nothing)
        total += tl.dot(tl.trans(above), value.to(above.dtype), input_precision=PRECISION)
    total *= tl.load(scales + graph) / (1.0 - rate)
    target = to_weight + (graph * d + column)[:, None] * D + unit[None, :]
    tl.store(target, total, mask=(column < d)[:, None] & (unit < D)[None, :])


def turns(width: int) -> int:
    return min(8, power_of_2(triton.cdiv(width, LANES.value)))


def padded(width: int) -> int:
    """Units for which there are bits."""
    span = LANES.value * turns(width)
    return triton.cdiv(width, span) * span


def tile_for(chosen: dict[str, int], width: int) -> dict[str, int]:
    """The tile of a kernel, no wider than the first layer."""
    tile = chosen | {name: EXACT[name] for name in chosen if exact()}
    if "UNITS" in tile:
        tile["UNITS"] = min(tile["UNITS"], LANES.value * turns(width))
    return tile


def rounded(rate: float) -> float:
    """A rate as numbers are compared with it: kernels know it when they are compiled."""
    return torch.tensor(rate, dtype=torch.float32).item()


def launch(kernel, parts: int, tile, inputs, pairs, starts: Tensor, weight: Tensor, rate, **more):
    """Run a kernel with ``parts`` programs per graph."""
    d, width = weight.shape[-2:]
    sizes = (pairs.shape[-2], starts.shape[-1] - 1, pairs.shape[-1])
    kernel[(pairs.numel() // pairs.shape[-1] * parts,)](
        *inputs, *sizes, width, d, rounded(rate), TURNS=turns(width),
        PRECISION="ieee" if exact() else "tf32", WIDTH=max(16, power_of_2(d)), **tile, **more,
    )  # fmt: skip


def backward(
    divided, scale, sender, receiver, weight, heard, pairs, order, starts, rate
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of sides and W from those of hidden, as factors that ``scale`` multiplies."""
    d, width = weight.shape[-2:]
    sender, receiver, weight = (given.to(factor()) for given in (sender, receiver, weight))
    to_sender, to_receiver = scale.new_empty(2, *sender.shape).unbind(0)
    tile = tile_for(TO_NODES, width)
    tiles = padded(width) // tile["UNITS"]
    parts = 2 * triton.cdiv(sender.shape[-2], tile["NODES"]) * tiles
    inputs = (divided, scale, weight, heard.view(torch.int32), pairs, order, starts)
    inputs += (to_sender, to_receiver)
    launch(_to_nodes, parts, tile, inputs, pairs, starts, weight, rate)
    to_weight = scale.new_empty(*pairs.shape[:-1], d, width)
    tile = tile_for(TO_WEIGHT, width)
    inputs = (divided, scale, sender, receiver, heard, pairs, starts, to_weight)
    launch(_to_weight, triton.cdiv(width, tile["UNITS"]), tile, inputs, pairs, starts, weight, rate)
    # Graphs are summed in a fixed order, so the result is the same in every run.
    return to_sender, to_receiver, to_weight.sum(-3)
