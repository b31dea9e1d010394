"""``W drop(relu(s_i + r_j))`` of listed edges: the first layer lives in registers only.

Forward, a program makes some edges of one graph. Backward, a program takes some units of one graph
and goes through the edges of some nodes at a time. It sums what every node gets by a product with
ones and zeros, so nothing is added by atomics. Dropout is drawn again there: reading bits that the
way forward had kept took 1.2 times as long on an H200, each with its best tile.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.uniform import keeps

# Edges and units of a tile (of units at most as many as there are), and warps per program.
FORWARD = (64, 16, 4)
BACKWARD = (32, 64, 4)
# Nodes at a time on the way back, and programs per graph and tile of units.
NODES, PARTS = 16, 2


@triton.jit
def _part_of(parts):
    """Which of a graph's parts a program makes, and the graph; programs side by side share it.

    So its nodes stay in the cache that all of them have.
    """
    program = tl.program_id(0)
    return program % parts, (program // parts).to(tl.int64)


@triton.jit
def _first(left, right, place, key, unit, inside, D, rate, DROP: tl.constexpr):
    """The first layer of some edges, (edges, units), before dropped units make the others larger.

    ``left`` and ``right`` point at the rows of the two nodes; ``place`` counts from the fold's
    first.
    """
    value = tl.load(left + unit[None, :], mask=inside, other=0.0)
    value += tl.load(right + unit[None, :], mask=inside, other=0.0)
    value = tl.maximum(value, 0.0)
    if DROP:
        drawn = place.to(tl.uint32)[:, None] * D + unit.to(tl.uint32)[None, :]
        value = tl.where(keeps(drawn, key, rate), value, 0.0)
    return value


@triton.jit
def _forward(
    sender, receiver, weight, keys, pairs, out, batch, p, places, D, d, rate,
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
    position = graph % batch * places + place
    total = tl.zeros((EDGES, WIDTH), tl.float32)
    # Empty places are the last of both directions.
    if tl.max(flat, 0) > 0:
        for start in range(0, D, UNITS):
            unit = start + tl.arange(0, UNITS)
            inside = (flat > 0)[:, None] & (unit < D)[None, :]
            first = _first(left, right, position, key, unit, inside, D, rate, DROP)
            matrix = tl.load(
                weight + column[None, :] * D + unit[:, None],
                mask=(column < d)[None, :] & (unit < D)[:, None], other=0.0,
            )  # fmt: skip
            total += tl.dot(first, matrix, input_precision=PRECISION)
    inside = (place < places)[:, None] & (column < d)[None, :]
    target = out + (graph * places + place)[:, None] * d + column[None, :]
    tl.store(target, total / (1.0 - rate), mask=inside)


@triton.jit
def _backward(
    grad, sender, receiver, weight, keys, pairs, order, starts,
    to_sender, to_receiver, to_weight, batch, p, places, D, d, rate,
    DROP: tl.constexpr, PRECISION: tl.constexpr, NODES: tl.constexpr, PARTS: tl.constexpr,
    EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    part, graph = _part_of(PARTS * tl.cdiv(D, UNITS))
    tile, part = part // PARTS, part % PARTS
    fold = graph // batch
    key = tl.load(keys + fold).to(tl.uint32)
    unit, column = tile * UNITS + tl.arange(0, UNITS), tl.arange(0, WIDTH)
    some, wide = unit < D, (column < d)[None, :]
    matrix = tl.load(
        weight + fold * d * D + column[:, None] * D + unit[None, :],
        mask=(column < d)[:, None] & some[None, :], other=0.0,
    )  # fmt: skip
    sender += graph * p * D
    receiver += graph * p * D
    grad += graph * places * d
    pairs += graph * places
    order += graph * places
    starts += graph * (p + 1)
    first_place = graph % batch * places
    weight_sum = tl.zeros((WIDTH, UNITS), tl.float32)
    for group in range(part, tl.cdiv(p, NODES), PARTS):
        node = group * NODES + tl.arange(0, NODES)
        sent = tl.zeros((NODES, UNITS), tl.float32)
        received = tl.zeros((NODES, UNITS), tl.float32)
        last = tl.load(starts + tl.minimum((group + 1) * NODES, p))
        for start in range(tl.load(starts + group * NODES), last, EDGES):
            step = start + tl.arange(0, EDGES)
            listed = step < last
            inside = listed[:, None] & some[None, :]
            place = tl.load(order + step, mask=listed, other=0)
            flat = tl.load(pairs + place, mask=listed, other=0).to(tl.int32)
            near, far = (flat // p)[:, None] * D, (flat % p)[:, None] * D
            belongs = ((flat // p)[None, :] == node[:, None]) & listed[None, :]
            belongs = belongs.to(tl.float32)
            # The edge there.
            above = tl.load(
                grad + place[:, None] * d + column[None, :], mask=listed[:, None] & wide, other=0.0
            )
            value = _first(
                sender + near, receiver + far,
                first_place + place, key, unit, inside, D, rate, DROP,
            )  # fmt: skip
            slope = tl.where(value > 0, tl.dot(above, matrix, input_precision=PRECISION), 0.0)
            sent += tl.dot(belongs, slope, input_precision=PRECISION)
            weight_sum += tl.dot(tl.trans(above), value, input_precision=PRECISION)
            # The edge back.
            place = tl.where(place < places // 2, place + places // 2, place - places // 2)
            above = tl.load(
                grad + place[:, None] * d + column[None, :], mask=listed[:, None] & wide, other=0.0
            )
            value = _first(
                sender + far, receiver + near,
                first_place + place, key, unit, inside, D, rate, DROP,
            )  # fmt: skip
            slope = tl.where(value > 0, tl.dot(above, matrix, input_precision=PRECISION), 0.0)
            received += tl.dot(belongs, slope, input_precision=PRECISION)
        target = (graph * p + node)[:, None] * D + unit[None, :]
        inside = (node < p)[:, None] & some[None, :]
        tl.store(to_sender + target, sent / (1.0 - rate), mask=inside)
        tl.store(to_receiver + target, received / (1.0 - rate), mask=inside)
    row = (graph * PARTS + part) * d + column
    target = to_weight + row[:, None] * D + unit[None, :]
    inside = (column < d)[:, None] & some[None, :]
    tl.store(target, weight_sum / (1.0 - rate), mask=inside)


def _launch(kernel, grid, tile, inputs, pairs, starts: Tensor, weight: Tensor, rate, **more):
    edges, units, warps = tile
    d, width = weight.shape[-2:]
    exact = torch.get_float32_matmul_precision() == "highest"
    sizes = (pairs.shape[-2], starts.shape[-1] - 1, pairs.shape[-1], width, d)
    kernel[grid](
        *inputs, *sizes, rate, DROP=rate > 0, PRECISION="ieee" if exact else "tf32",
        EDGES=edges, UNITS=units, WIDTH=max(16, power_of_2(d)), num_warps=warps, **more,
    )  # fmt: skip


class EdgeHidden(Fused):
    """Sides (*F, B, P, D), W (*F, d, D), keys (*F), lists (*F, B, .) to (*F, B, 2E, d)."""

    @staticmethod
    def run(sender, receiver, weight, key, pairs, order, starts, rate):
        out = sender.new_empty(*pairs.shape, weight.shape[-2])
        graphs = pairs.numel() // pairs.shape[-1]
        grid = (graphs * triton.cdiv(pairs.shape[-1], FORWARD[0]),)
        inputs = (sender, receiver, weight, key, pairs, out)
        _launch(_forward, grid, FORWARD, inputs, pairs, starts, weight, rate)
        return out

    @staticmethod
    def slopes(grad, sender, receiver, weight, key, pairs, order, starts, rate):
        to_sender, to_receiver = torch.empty_like(sender), torch.empty_like(receiver)
        graphs = pairs.numel() // pairs.shape[-1]
        parts = sender.new_empty(graphs, PARTS, *weight.shape[-2:])
        edges, units, warps = BACKWARD
        # A matrix product takes at least 16.
        units = min(units, max(16, power_of_2(weight.shape[-1])))
        grid = (graphs * triton.cdiv(weight.shape[-1], units) * PARTS,)
        inputs = (grad, sender, receiver, weight, key, pairs, order, starts)
        inputs = (*inputs, to_sender, to_receiver, parts)
        tile = (edges, units, warps)
        more = {"NODES": NODES, "PARTS": PARTS}
        _launch(_backward, grid, tile, inputs, pairs, starts, weight, rate, **more)
        # Summing the parts in a fixed order keeps the result the same in every run.
        to_weight = parts.view(*weight.shape[:-2], -1, *weight.shape[-2:]).sum(-3)
        return to_sender, to_receiver, to_weight
