"""Additive scores of listed edges: no tensor of the size (edges x hidden units) is written.

A program works through the edges of one graph, whose nodes then stay in the nearest cache. The
backward pass goes node by node through a node's own edges, so nothing is added by atomics.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers in a tile (the units of some edges), programs per graph, and warps per program.
FORWARD = (4096, 1, 8)
BACKWARD = (2048, 2, 1)


@triton.jit
def _scores(
    sender, receiver, weight, pairs, starts, out, graphs_per_weight, graphs_per_fold, p, d, e,
    EDGES: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    row = graph // graphs_per_fold * graphs_per_weight + graph % graphs_per_weight
    unit = tl.arange(0, UNITS)
    scale = tl.load(weight + graph // graphs_per_weight * d + unit, mask=unit < d, other=0.0)
    count = tl.load(starts + row * (p + 1) + p) // 2
    sender += graph * p * d
    receiver += graph * p * d
    pairs += row * 2 * e
    out += graph * 2 * e
    for start in range(tl.program_id(1) * EDGES, count, tl.num_programs(1) * EDGES):
        place = start + tl.arange(0, EDGES)
        listed = place < count
        flat = tl.load(pairs + place, mask=listed, other=0).to(tl.int32)
        i, j = (flat // p)[:, None] * d, (flat % p)[:, None] * d
        inside = listed[:, None] & (unit < d)[None, :]
        there = tl.load(sender + i + unit[None, :], mask=inside, other=0.0)
        there += tl.load(receiver + j + unit[None, :], mask=inside, other=0.0)
        total = tl.sum(tl.maximum(there, 0.0) * scale[None, :], 1)
        tl.store(out + place, total, mask=listed)
        back = tl.load(sender + j + unit[None, :], mask=inside, other=0.0)
        back += tl.load(receiver + i + unit[None, :], mask=inside, other=0.0)
        total = tl.sum(tl.maximum(back, 0.0) * scale[None, :], 1)
        tl.store(out + e + place, total, mask=listed)


@triton.jit
def _backward(
    sender, receiver, weight, order, neighbours, starts, grad, to_sender, to_receiver, to_weight,
    graphs_per_weight, graphs_per_fold, p, d, e,
    EDGES: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    row = graph // graphs_per_fold * graphs_per_weight + graph % graphs_per_weight
    unit = tl.arange(0, UNITS)
    scale = tl.load(weight + graph // graphs_per_weight * d + unit, mask=unit < d, other=0.0)
    sender += graph * p * d
    receiver += graph * p * d
    to_sender += graph * p * d
    to_receiver += graph * p * d
    grad += graph * 2 * e
    order += row * 2 * e
    neighbours += row * 2 * e
    starts += row * (p + 1)
    weight_sum = tl.zeros((UNITS,), tl.float32)
    for node in range(tl.program_id(1), p, tl.num_programs(1)):
        own = node * d + unit
        sending = tl.load(sender + own, mask=unit < d, other=0.0)
        receiving = tl.load(receiver + own, mask=unit < d, other=0.0)
        first, last = tl.load(starts + node), tl.load(starts + node + 1)
        # Per unit, the gradients of all edges of the node whose unit is open.
        sent = tl.zeros((EDGES, UNITS), tl.float32)
        received = tl.zeros((EDGES, UNITS), tl.float32)
        for start in range(first, last, EDGES):
            step = start + tl.arange(0, EDGES)
            listed = step < last
            place = tl.load(order + step, mask=listed, other=0)
            other = tl.load(neighbours + step, mask=listed, other=0)
            other = other[:, None] * d + unit[None, :]
            inside = listed[:, None] & (unit < d)[None, :]
            leaving = tl.load(grad + place, mask=listed, other=0.0)
            opposite = tl.where(place < e, place + e, place - e)
            arriving = tl.load(grad + opposite, mask=listed, other=0.0)
            there = sending[None, :] + tl.load(receiver + other, mask=inside, other=0.0)
            sent += tl.where(there > 0, leaving[:, None], 0.0)
            back = receiving[None, :] + tl.load(sender + other, mask=inside, other=0.0)
            received += tl.where(back > 0, arriving[:, None], 0.0)
        sent_sum, received_sum = tl.sum(sent, 0), tl.sum(received, 0)
        tl.store(to_sender + own, sent_sum * scale, mask=unit < d)
        tl.store(to_receiver + own, received_sum * scale, mask=unit < d)
        # relu(x) = x [x > 0], so the weights' gradient follows from the same sums.
        weight_sum += sending * sent_sum + receiving * received_sum
    target = (graph * tl.num_programs(1) + tl.program_id(1)) * d + unit
    tl.store(to_weight + target, weight_sum, mask=unit < d)


def _sizes(sender: Tensor, pairs: Tensor) -> tuple[int, ...]:
    """Number of graphs, graphs per weight and per fold, P, D and E."""
    p, d = sender.shape[-2:]
    graphs, batch = sender.numel() // (p * d), pairs.shape[-2]
    folds = pairs.numel() // (batch * pairs.shape[-1])
    return graphs, batch, graphs // folds, p, d, pairs.shape[-1] // 2


def scores(
    sender: Tensor, receiver: Tensor, weight: Tensor, pairs: Tensor, starts: Tensor
) -> Tensor:
    """``sum_k w_k relu(s_ik + r_jk)`` of all listed edges, (*F, *K, B, 2E); zero in empty places.

    Nodes (*F, *K, B, P, D), weight (*F, *K, D), lists (*F, B, .), all contiguous.
    """
    graphs, *sizes = _sizes(sender, pairs)
    units = triton.next_power_of_2(sender.shape[-1])
    out = sender.new_zeros(*sender.shape[:-2], pairs.shape[-1])
    tile, parts, warps = FORWARD
    _scores[(graphs, parts)](
        sender, receiver, weight, pairs, starts, out, *sizes,
        EDGES=max(1, tile // units), UNITS=units, num_warps=warps,
    )  # fmt: skip
    return out


def gradients(
    sender: Tensor, receiver: Tensor, weight: Tensor, order: Tensor, neighbours: Tensor,
    starts: Tensor, grad: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of both sides of the nodes and of the weight."""
    graphs, *sizes = _sizes(sender, order)
    units = triton.next_power_of_2(sender.shape[-1])
    to_sender, to_receiver = torch.empty_like(sender), torch.empty_like(receiver)
    tile, parts, warps = BACKWARD
    to_weight = sender.new_empty(graphs, parts, sender.shape[-1])
    _backward[(graphs, parts)](
        sender, receiver, weight, order, neighbours, starts, grad,
        to_sender, to_receiver, to_weight, *sizes,
        EDGES=max(1, tile // units), UNITS=units, num_warps=warps,
    )  # fmt: skip
    # Summing the parts in a fixed order keeps the result the same in every run.
    parts = to_weight.view(*weight.shape[:-1], -1, weight.shape[-1])
    return to_sender, to_receiver, parts.sum(-2)
