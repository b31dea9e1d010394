"""Both sides of all edges, normalised over the edges of every graph, in one pass each way.

A program has all nodes of a graph and some units. What is needed of edges are products of the
graph with these units. Tensor cores make them of some columns of the graph at a time.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, exact, power_of_2

EPSILON = 1e-5
# Numbers of a side that a program has at most, columns of the graph at a time, and how to compile:
# with 128 registers, two programs of eight warps share a multiprocessor.
FORWARD = {"TILE": 8192, "DEPTH": 32, "num_warps": 8, "num_stages": 3, "maxnreg": 128}
BACKWARD = {"TILE": 8192, "DEPTH": 16, "num_warps": 8, "num_stages": 4}
# Tensor cores want 16 units. A graph of more nodes has no program. Larger graphs have fewer loads
# under way: else a GPU with 99 KB for a program could not run it.
UNITS, MOST_NODES, LARGE, LOADS = 16, 512, 256, 2


@triton.jit
def _program(WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """The graph and the units of this program."""
    parts: tl.constexpr = (WIDTH + COLUMNS - 1) // COLUMNS
    graph = (tl.program_id(0) // parts).to(tl.int64)
    return graph, tl.program_id(0) % parts * COLUMNS + tl.arange(0, COLUMNS)


@triton.jit
def _side(side, row, unit, NODES: tl.constexpr, WIDTH: tl.constexpr):
    """Some units of some nodes of a graph, zero outside, and where they are."""
    inside = (row < NODES)[:, None] & (unit < WIDTH)[None, :]
    place = row[:, None] * WIDTH + unit[None, :]
    return tl.load(side + place, mask=inside, other=0.0), place, inside


@triton.jit
def _heard(mask, row, node, NODES: tl.constexpr):
    """Some columns of a graph, which are the nodes that all others hear."""
    place = row[:, None] * NODES + node[None, :]
    return tl.load(mask + place, mask=(row < NODES)[:, None] & (node < NODES)[None, :], other=0.0)


@triton.jit
def _means(
    sender, receiver, row, unit, degree, count, NODES: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """Of both sides, over the edges of a graph."""
    left = tl.sum(degree[:, None] * _side(sender, row, unit, NODES, WIDTH)[0], 0)
    right = tl.sum(degree[:, None] * _side(receiver, row, unit, NODES, WIDTH)[0], 0)
    return (left / count)[None, :], (right / count)[None, :]


@triton.jit
def _forward(
    sender, receiver, mask, degrees, to_sender, to_receiver, scales, epsilon,
    NODES: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    graph, unit = _program(WIDTH, COLUMNS)
    row, here = tl.arange(0, ROWS), graph * NODES * WIDTH
    sender, receiver, mask = sender + here, receiver + here, mask + graph * NODES * NODES
    degree = tl.load(degrees + graph * NODES + row, mask=row < NODES, other=0.0)
    count = tl.sum(degree, 0)
    left, right = _means(sender, receiver, row, unit, degree, count, NODES, WIDTH)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, NODES, DEPTH):
        node = start + tl.arange(0, DEPTH)
        other = _side(receiver, node, unit, NODES, WIDTH)[0] - right
        heard = _heard(mask, row, node, NODES)
        total = tl.dot(heard, other, total, input_precision=PRECISION)
    # Sides are read again, because registers do not hold them beside the product. Padded nodes
    # have no degree and hear nobody.
    side = _side(sender, row, unit, NODES, WIDTH)[0] - left
    squares = tl.sum(side * (degree[:, None] * side + 2.0 * total), 0)
    side, place, inside = _side(receiver, row, unit, NODES, WIDTH)
    side -= right
    squares += tl.sum(degree[:, None] * side * side, 0)
    # Rounding may leave a number just below zero where all edges are alike.
    variance = tl.maximum(squares / count, 0.0)
    scale = 1.0 / tl.sqrt(variance + epsilon)
    tl.store(scales + graph * WIDTH + unit, scale, mask=unit < WIDTH)
    tl.store(to_receiver + here + place, side * scale[None, :], mask=inside)
    side = _side(sender, row, unit, NODES, WIDTH)[0] - left
    tl.store(to_sender + here + place, side * scale[None, :], mask=inside)


@triton.jit
def _finish(
    product, above, side, target, degree, mean, along, scale, row, unit,
    NODES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Write the gradient of one side."""
    product += degree[:, None] * _side(side, row, unit, NODES, WIDTH)[0]
    slope, place, inside = _side(above, row, unit, NODES, WIDTH)
    slope -= along[None, :] * product + degree[:, None] * mean[None, :]
    tl.store(target + place, slope * scale[None, :], mask=inside)


@triton.jit
def _backward(
    first, second, sender, receiver, mask, degrees, scales, to_sender, to_receiver,
    NODES: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    graph, unit = _program(WIDTH, COLUMNS)
    row, here = tl.arange(0, ROWS), graph * NODES * WIDTH
    sender, receiver, mask = sender + here, receiver + here, mask + graph * NODES * NODES
    first, second = first + here, second + here
    degree = tl.load(degrees + graph * NODES + row, mask=row < NODES, other=0.0)
    count = tl.sum(degree, 0)
    # Both sides share sigma, each has a mean of its own.
    above = _side(first, row, unit, NODES, WIDTH)[0]
    mean = tl.sum(above, 0) / count
    along = tl.sum(above * _side(sender, row, unit, NODES, WIDTH)[0], 0)
    above = _side(second, row, unit, NODES, WIDTH)[0]
    other = tl.sum(above, 0) / count
    along = (along + tl.sum(above * _side(receiver, row, unit, NODES, WIDTH)[0], 0)) / count
    sent, received = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, NODES, DEPTH):
        node = start + tl.arange(0, DEPTH)
        heard = _heard(mask, row, node, NODES)
        side = _side(receiver, node, unit, NODES, WIDTH)[0]
        sent = tl.dot(heard, side, sent, input_precision=PRECISION)
        side = _side(sender, node, unit, NODES, WIDTH)[0]
        received = tl.dot(heard, side, received, input_precision=PRECISION)
    scale = tl.load(scales + graph * WIDTH + unit, mask=unit < WIDTH, other=0.0)
    _finish(
        sent, first, sender, to_sender + here, degree, mean, along, scale, row, unit, NODES, WIDTH
    )
    _finish(
        received, second, receiver, to_receiver + here, degree, other, along, scale, row, unit,
        NODES, WIDTH,
    )  # fmt: skip


def _launch(kernel: Any, sizes: dict, sender: Tensor, *inputs: Any) -> None:
    nodes, width = sender.shape[-2:]
    rows, options = max(16, power_of_2(nodes)), dict(sizes)
    if nodes > LARGE:
        options["num_stages"] = LOADS
    columns = max(UNITS, min(power_of_2(width), options.pop("TILE") // rows))
    kernel[(sender.numel() // (nodes * width) * triton.cdiv(width, columns),)](
        *inputs, NODES=nodes, WIDTH=width, PRECISION="tf32x3" if exact() else "tf32",
        ROWS=rows, COLUMNS=columns, **options,
    )  # fmt: skip


class NormedSides(Fused):
    """Sides (*F, B, P, D) and symmetric graphs (*F, B, P, P) to both sides normalised.

    Also ``1 / sigma`` (*F, B, D) and degrees (*F, B, P), which are constants to autograd.
    """

    @staticmethod
    def run(sender, receiver, mask):
        degrees = mask.sum(-1)
        sides = torch.empty_like(sender), torch.empty_like(sender)
        scales = sender.new_empty(*sender.shape[:-2], sender.shape[-1])
        inputs = (sender, receiver, mask, degrees, *sides, scales, EPSILON)
        _launch(_forward, FORWARD, sender, *inputs)
        return *sides, scales, degrees

    @classmethod
    def setup_context(cls, ctx, inputs, output):
        ctx.mark_non_differentiable(*output[2:])
        ctx.save_for_backward(*output[:2], inputs[2], output[3], output[2])

    @classmethod
    def backward(cls, ctx, *grads):
        return *cls.Slopes.apply(*grads[:2], *ctx.saved_tensors), None

    @staticmethod
    def slopes(first, second, sender, receiver, mask, degrees, scales):
        found = torch.empty_like(sender), torch.empty_like(sender)
        inputs = (first, second, sender, receiver, mask, degrees, scales, *found)
        _launch(_backward, BACKWARD, sender, *inputs)
        return found
