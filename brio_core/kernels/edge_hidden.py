"""``W drop(relu(s_i + r_j))`` of listed edges: the first layer lives in registers only.

Forward, a program makes some edges of one graph. Backward, a program takes some units of one graph
and goes node by node through a node's own edges, so nothing is added by atomics.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.uniform import draw

# Edges and units of a tile (of units at most as many as there are), and warps per program.
FORWARD = (128, 16, 4)
BACKWARD = (16, 128, 4)
# Programs per graph and tile of units on the way back.
PARTS = 2


@triton.jit
def _first(left, right, place, key, unit, inside, D, rate, DROP: tl.constexpr):
    """The first layer of some edges, (edges, units); ``place`` counts from the fold's first."""
    value = tl.where(inside, tl.maximum(left + right, 0.0), 0.0)
    if DROP:
        drawn = draw(place.to(tl.uint32)[:, None] * D + unit.to(tl.uint32)[None, :], key)
        value = tl.where(drawn >= rate, value / (1.0 - rate), 0.0)
    return value


@triton.jit
def _forward(
    sender, receiver, weight, keys, pairs, out, batch, p, places, D, d, rate,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    fold = graph // batch
    key = tl.load(keys + fold).to(tl.uint32)
    place, column = tl.program_id(1) * EDGES + tl.arange(0, EDGES), tl.arange(0, WIDTH)
    flat = tl.load(pairs + graph * places + place, mask=place < places, other=0).to(tl.int32)
    left = sender + (graph * p + flat // p)[:, None] * D
    right = receiver + (graph * p + flat % p)[:, None] * D
    weight += fold * d * D
    position = graph % batch * places + place
    total = tl.zeros((EDGES, WIDTH), tl.float32)
    for start in range(0, D, UNITS):
        unit = start + tl.arange(0, UNITS)
        inside = (flat > 0)[:, None] & (unit < D)[None, :]
        first = _first(
            tl.load(left + unit[None, :], mask=inside, other=0.0),
            tl.load(right + unit[None, :], mask=inside, other=0.0),
            position, key, unit, inside, D, rate, DROP,
        )  # fmt: skip
        matrix = tl.load(
            weight + column[None, :] * D + unit[:, None],
            mask=(column < d)[None, :] & (unit < D)[:, None], other=0.0,
        )  # fmt: skip
        total += tl.dot(first, matrix, input_precision=PRECISION)
    inside = (place < places)[:, None] & (column < d)[None, :]
    tl.store(out + (graph * places + place)[:, None] * d + column[None, :], total, mask=inside)


@triton.jit
def _backward(
    grad, sender, receiver, weight, keys, pairs, order, starts,
    to_sender, to_receiver, to_weight, batch, p, places, D, d, rate,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    EDGES: tl.constexpr, UNITS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    fold = graph // batch
    key = tl.load(keys + fold).to(tl.uint32)
    unit, column = tl.program_id(1) * UNITS + tl.arange(0, UNITS), tl.arange(0, WIDTH)
    some, wide = unit < D, (column < d)[None, :]
    matrix = tl.load(
        weight + fold * d * D + column[:, None] * D + unit[None, :],
        mask=(column < d)[:, None] & some[None, :], other=0.0,
    )  # fmt: skip
    sender += graph * p * D
    receiver += graph * p * D
    to_sender += graph * p * D
    to_receiver += graph * p * D
    grad += graph * places * d
    pairs += graph * places
    order += graph * places
    starts += graph * (p + 1)
    first_place = graph % batch * places
    weight_sum = tl.zeros((WIDTH, UNITS), tl.float32)
    for node in range(tl.program_id(2), p, tl.num_programs(2)):
        first, last = tl.load(starts + node), tl.load(starts + node + 1)
        own = node * D + unit
        own_sender = tl.load(sender + own, mask=some, other=0.0)[None, :]
        own_receiver = tl.load(receiver + own, mask=some, other=0.0)[None, :]
        sent = tl.zeros((UNITS,), tl.float32)
        received = tl.zeros((UNITS,), tl.float32)
        for start in range(first, last, EDGES):
            step = start + tl.arange(0, EDGES)
            listed = step < last
            inside = listed[:, None] & some[None, :]
            place = tl.load(order + step, mask=listed, other=0)
            other = tl.load(pairs + place, mask=listed, other=0).to(tl.int32) % p
            far = other[:, None] * D + unit[None, :]
            # The edge there.
            above = tl.load(
                grad + place[:, None] * d + column[None, :], mask=listed[:, None] & wide, other=0.0
            )
            value = _first(
                own_sender, tl.load(receiver + far, mask=inside, other=0.0),
                first_place + place, key, unit, inside, D, rate, DROP,
            )  # fmt: skip
            slope = tl.dot(above, matrix, input_precision=PRECISION)
            sent += tl.sum(tl.where(value > 0, slope, 0.0), 0)
            weight_sum += tl.dot(tl.trans(above), value, input_precision=PRECISION)
            # The edge back.
            place = tl.where(place < places // 2, place + places // 2, place - places // 2)
            above = tl.load(
                grad + place[:, None] * d + column[None, :], mask=listed[:, None] & wide, other=0.0
            )
            value = _first(
                tl.load(sender + far, mask=inside, other=0.0), own_receiver,
                first_place + place, key, unit, inside, D, rate, DROP,
            )  # fmt: skip
            slope = tl.dot(above, matrix, input_precision=PRECISION)
            received += tl.sum(tl.where(value > 0, slope, 0.0), 0)
        tl.store(to_sender + own, sent / (1.0 - rate), mask=some)
        tl.store(to_receiver + own, received / (1.0 - rate), mask=some)
    target = (graph * tl.num_programs(2) + tl.program_id(2)) * d + column
    inside = (column < d)[:, None] & some[None, :]
    tl.store(to_weight + target[:, None] * D + unit[None, :], weight_sum, mask=inside)


def _launch(kernel, grid, tile, inputs, pairs: Tensor, starts: Tensor, weight: Tensor, rate):
    edges, units, warps = tile
    d, width = weight.shape[-2:]
    exact = torch.get_float32_matmul_precision() == "highest"
    sizes = (pairs.shape[-2], starts.shape[-1] - 1, pairs.shape[-1], width, d)
    kernel[grid](
        *inputs, *sizes, rate, DROP=rate > 0, PRECISION="ieee" if exact else "tf32",
        EDGES=edges, UNITS=units, WIDTH=max(16, power_of_2(d)), num_warps=warps,
    )  # fmt: skip


class EdgeHidden(Fused):
    """Sides (*F, B, P, D), W (*F, d, D), keys (*F), lists (*F, B, .) to (*F, B, 2E, d)."""

    @staticmethod
    def run(sender, receiver, weight, key, pairs, order, starts, rate):
        out = sender.new_empty(*pairs.shape, weight.shape[-2])
        graphs = pairs.numel() // pairs.shape[-1]
        grid = (graphs, triton.cdiv(pairs.shape[-1], FORWARD[0]))
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
        grid = (graphs, triton.cdiv(weight.shape[-1], units), PARTS)
        inputs = (grad, sender, receiver, weight, key, pairs, order, starts)
        inputs = (*inputs, to_sender, to_receiver, parts)
        _launch(_backward, grid, (edges, units, warps), inputs, pairs, starts, weight, rate)
        # Summing the parts in a fixed order keeps the result the same in every run.
        to_weight = parts.view(*weight.shape[:-2], -1, *weight.shape[-2:]).sum(-3)
        return to_sender, to_receiver, to_weight
