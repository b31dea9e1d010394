"""Additive scores of listed edges: no tensor of the size (edges x hidden units) is written.

A program works through all edges of one graph, whose nodes then stay in the nearest cache. The
backward pass goes node by node through a node's own edges, so nothing is added by atomics.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# Numbers in a tile (the units of some edges), programs per graph, and warps per program.
FORWARD = (4096, 4, 8)
BACKWARD = (2048, 4, 4)


@triton.jit
def _scores(
    sender, receiver, weight, pairs, starts, out, graphs_per_weight, graphs_per_fold, p, d, e,
    EDGES: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    row = graph // graphs_per_fold * graphs_per_weight + graph % graphs_per_weight
    unit = tl.arange(0, UNITS)
    scale = tl.load(weight + graph // graphs_per_weight * d + unit, mask=unit < d, other=0.0)
    count = (tl.load(starts + row * (p + 1) + p) // 2).to(tl.int32)
    sender += graph * p * d
    receiver += graph * p * d
    for start in range(tl.program_id(1) * EDGES, count, tl.num_programs(1) * EDGES):
        place = start + tl.arange(0, EDGES)
        listed = place < count
        flat = tl.load(pairs + row * 2 * e + place, mask=listed, other=0)
        i, j = (flat // p).to(tl.int32)[:, None] * d, (flat % p).to(tl.int32)[:, None] * d
        inside = listed[:, None] & (unit < d)[None, :]
        there = tl.load(sender + i + unit[None, :], mask=inside, other=0.0)
        there += tl.load(receiver + j + unit[None, :], mask=inside, other=0.0)
        total = tl.sum(tl.maximum(there, 0.0) * scale[None, :], 1)
        tl.store(out + graph * 2 * e + place, total, mask=listed)
        back = tl.load(sender + j + unit[None, :], mask=inside, other=0.0)
        back += tl.load(receiver + i + unit[None, :], mask=inside, other=0.0)
        total = tl.sum(tl.maximum(back, 0.0) * scale[None, :], 1)
        tl.store(out + graph * 2 * e + e + place, total, mask=listed)


@triton.jit
def _open_sums(
    sender, receiver, pairs, order, starts, grad, sent, received,
    graphs_per_weight, graphs_per_fold, p, d, e,
    EDGES: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    row = graph // graphs_per_fold * graphs_per_weight + graph % graphs_per_weight
    unit = tl.arange(0, UNITS)
    sender += graph * p * d
    receiver += graph * p * d
    grad += graph * 2 * e
    for node in range(tl.program_id(1), p, tl.num_programs(1)):
        own = node * d + unit
        sending = tl.load(sender + own, mask=unit < d, other=0.0)[None, :]
        receiving = tl.load(receiver + own, mask=unit < d, other=0.0)[None, :]
        first = tl.load(starts + row * (p + 1) + node).to(tl.int32)
        last = tl.load(starts + row * (p + 1) + node + 1).to(tl.int32)
        sent_sum = tl.zeros((EDGES, UNITS), tl.float32)
        received_sum = tl.zeros((EDGES, UNITS), tl.float32)
        for start in range(first, last, EDGES):
            step = start + tl.arange(0, EDGES)
            listed = step < last
            place = tl.load(order + row * 2 * e + step, mask=listed, other=0).to(tl.int32)
            flat = tl.load(pairs + row * 2 * e + place, mask=listed, other=0)
            other = (flat % p).to(tl.int32)[:, None] * d + unit[None, :]
            inside = listed[:, None] & (unit < d)[None, :]
            leaving = tl.load(grad + place, mask=listed, other=0.0)[:, None]
            arriving = tl.load(
                grad + tl.where(place < e, place + e, place - e), mask=listed, other=0.0
            )[:, None]
            there = sending + tl.load(receiver + other, mask=inside, other=0.0)
            sent_sum += tl.where(there > 0, leaving, 0.0)
            back = receiving + tl.load(sender + other, mask=inside, other=0.0)
            received_sum += tl.where(back > 0, arriving, 0.0)
        target = graph * p * d + own
        tl.store(sent + target, tl.sum(sent_sum, 0), mask=unit < d)
        tl.store(received + target, tl.sum(received_sum, 0), mask=unit < d)


def _sizes(sender: Tensor, weight: Tensor, pairs: Tensor) -> tuple[int, ...]:
    """Number of graphs, graphs per weight and per fold, P, D and E."""
    p, d = sender.shape[-2:]
    graphs, batch = sender.numel() // (p * d), pairs.shape[-2]
    folds = pairs.numel() // (batch * pairs.shape[-1])
    return graphs, batch, graphs // folds, p, d, pairs.shape[-1] // 2


def scores(sender: Tensor, receiver: Tensor, weight: Tensor, pairs: Tensor, starts: Tensor):
    """``sum_k w_k relu(s_ik + r_jk)`` of all listed edges, (*F, *K, B, 2E); zero in empty places.

    Nodes (*F, *K, B, P, D), weight (*F, *K, D), lists (*F, B, .), all contiguous.
    """
    graphs, *sizes = _sizes(sender, weight, pairs)
    units = triton.next_power_of_2(sender.shape[-1])
    out = sender.new_zeros(*sender.shape[:-2], pairs.shape[-1])
    tile, parts, warps = FORWARD
    _scores[(graphs, parts)](
        sender, receiver, weight, pairs, starts, out, *sizes,
        EDGES=max(1, tile // units), UNITS=units, num_warps=warps,
    )  # fmt: skip
    return out


def open_sums(
    sender: Tensor, receiver: Tensor, weight: Tensor, pairs: Tensor, order: Tensor, starts: Tensor,
    grad: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Per node and unit, the gradients of all its edges whose unit is open: sent and received."""
    graphs, *sizes = _sizes(sender, weight, pairs)
    units = triton.next_power_of_2(sender.shape[-1])
    sent, received = torch.empty_like(sender), torch.empty_like(receiver)
    tile, parts, warps = BACKWARD
    _open_sums[(graphs, parts)](
        sender, receiver, pairs, order, starts, grad, sent, received, *sizes,
        EDGES=max(1, tile // units), UNITS=units, num_warps=warps,
    )  # fmt: skip
    return sent, received
