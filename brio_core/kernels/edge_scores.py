"""Additive scores of listed edges: no tensor of the size (edges x hidden units) is written.

A program works through the edges of one graph, whose nodes then stay in the nearest cache, and
notes in one bit per unit which units of an edge are open. The backward pass needs no more of an
edge than these bits; it goes node by node through a node's own edges, so nothing is added by
atomics. Of wide layers either takes some units at a time, so that tiles and nodes still fit.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2

# Numbers in a tile (some units of some edges), programs per graph, and warps per program.
FORWARD = (4096, 1, 8)
BACKWARD = (2048, 2, 2)
# Units of a tile, if there are so many.
WIDTH = 64


@triton.jit
def _relu_sum(inputs, scale, unit, opened, listed, WORDS: tl.constexpr):
    """Scores of some edges; which units are open is noted, 32 in a word."""
    bit = tl.full(unit.shape, 1, tl.int32) << (unit % 32)
    for word in tl.static_range(WORDS):
        here = (inputs > 0) & (unit // 32 == word)[None, :]
        tl.store(opened + word, tl.sum(tl.where(here, bit[None, :], 0), 1), mask=listed)
    heard = tl.maximum(inputs, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.sum(heard * scale[None, :], 1)


@triton.jit
def _add(out, total, listed, more):
    """Store the scores of some edges, or ``more`` of them."""
    tl.store(out, total + tl.load(out, mask=listed & more, other=0.0), mask=listed)


@triton.jit
def _scores(
    sender, receiver, weight, pairs, starts, out, opened,
    batch, experts, p, e, d: tl.constexpr,
    MEAN: tl.constexpr, EDGES: tl.constexpr, UNITS: tl.constexpr, WORDS: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    row = graph // (experts * batch) * batch + graph % batch
    unit = tl.arange(0, UNITS)
    # The experts of a node stand side by side.
    nodes = (row * p * experts + graph // batch % experts) * d
    stride = experts * d
    count = tl.load(starts + row * (p + 1) + p) // 2
    sender += nodes
    receiver += nodes
    pairs += row * 2 * e
    out += graph * (e if MEAN else 2 * e)
    opened += graph * 2 * e * WORDS * TILES
    for tile in range(TILES):
        # What one thread has stored another one may add to.
        tl.debug_barrier()
        some = tile * UNITS + unit
        scale = tl.load(weight + graph // batch * d + some, mask=some < d, other=0.0)
        for start in range(tl.program_id(1) * EDGES, count, tl.num_programs(1) * EDGES):
            place = start + tl.arange(0, EDGES)
            listed = place < count
            flat = tl.load(pairs + place, mask=listed, other=0).to(tl.int32)
            i, j = (flat // p)[:, None] * stride, (flat % p)[:, None] * stride
            inside = listed[:, None] & (some < d)[None, :]
            there = tl.load(sender + i + some[None, :], mask=inside, other=0.0)
            there += tl.load(receiver + j + some[None, :], mask=inside, other=0.0)
            bits = opened + (place * TILES + tile) * WORDS
            sent = _relu_sum(there, scale, unit, bits, listed, WORDS)
            back = tl.load(sender + j + some[None, :], mask=inside, other=0.0)
            back += tl.load(receiver + i + some[None, :], mask=inside, other=0.0)
            bits = opened + ((e + place) * TILES + tile) * WORDS
            returned = _relu_sum(back, scale, unit, bits, listed, WORDS)
            if MEAN:
                _add(out + place, (sent + returned) * 0.5, listed, tile > 0)
            else:
                _add(out + place, sent, listed, tile > 0)
                _add(out + e + place, returned, listed, tile > 0)
    first = count + tl.program_id(1) * EDGES
    for start in range(first, e, tl.num_programs(1) * EDGES):
        place = start + tl.arange(0, EDGES)
        tl.store(out + place, 0.0, mask=place < e)
        if not MEAN:
            tl.store(out + e + place, 0.0, mask=place < e)


@triton.jit
def _through(opened, above, place, stride, listed, unit, WORDS: tl.constexpr):
    """The gradients of some edges for every unit that is open, zero for the others."""
    words = tl.load(opened + place * stride, mask=listed, other=0)[:, None]
    for word in tl.static_range(1, WORDS):
        next_words = tl.load(opened + place * stride + word, mask=listed, other=0)[:, None]
        words = tl.where((unit // 32 == word)[None, :], next_words, words)
    bit = tl.full(unit.shape, 1, tl.int32) << (unit % 32)
    return tl.where(words & bit[None, :] != 0, above[:, None], 0.0)


@triton.jit
def _backward(
    sender, receiver, weight, opened, order, starts, grad, to_sender, to_receiver, to_weight,
    batch, experts, p, e, d: tl.constexpr,
    MEAN: tl.constexpr, EDGES: tl.constexpr, UNITS: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    row = graph // (experts * batch) * batch + graph % batch
    unit = tl.arange(0, UNITS)
    tile, words = tl.program_id(2), tl.num_programs(2) * WORDS
    some = tile * UNITS + unit
    scale = tl.load(weight + graph // batch * d + some, mask=some < d, other=0.0)
    # The experts of a node stand side by side.
    nodes = (row * p * experts + graph // batch % experts) * d
    stride = experts * d
    sender += nodes
    receiver += nodes
    to_sender += nodes
    to_receiver += nodes
    grad += graph * (e if MEAN else 2 * e)
    opened += graph * 2 * e * words + tile * WORDS
    order += row * 2 * e
    starts += row * (p + 1)
    weight_sum = tl.zeros((UNITS,), tl.float32)
    for node in range(tl.program_id(1), p, tl.num_programs(1)):
        first, last = tl.load(starts + node), tl.load(starts + node + 1)
        # Per unit, the gradients of all edges of the node whose unit is open.
        sent = tl.zeros((UNITS,), tl.float32)
        received = tl.zeros((UNITS,), tl.float32)
        for start in range(first, last, EDGES):
            step = start + tl.arange(0, EDGES)
            listed = step < last
            place = tl.load(order + step, mask=listed, other=0)
            opposite = tl.where(place < e, place + e, place - e)
            if MEAN:
                above = 0.5 * tl.load(grad + tl.minimum(place, opposite), mask=listed, other=0.0)
                below = above
            else:
                above = tl.load(grad + place, mask=listed, other=0.0)
                below = tl.load(grad + opposite, mask=listed, other=0.0)
            sent += tl.sum(_through(opened, above, place, words, listed, unit, WORDS), 0)
            received += tl.sum(_through(opened, below, opposite, words, listed, unit, WORDS), 0)
        own = node * stride + some
        tl.store(to_sender + own, sent * scale, mask=some < d)
        tl.store(to_receiver + own, received * scale, mask=some < d)
        # relu(x) = x [x > 0], so the weights' gradient follows from the same sums.
        weight_sum += tl.load(sender + own, mask=some < d, other=0.0) * sent
        weight_sum += tl.load(receiver + own, mask=some < d, other=0.0) * received
    target = (graph * tl.num_programs(1) + tl.program_id(1)) * d + some
    tl.store(to_weight + target, weight_sum, mask=some < d)


def _sizes(sender: Tensor, lists: Tensor, starts: Tensor) -> tuple[int, ...]:
    """Number of graphs, graphs per expert and fold, experts, P, E and D."""
    batch, p, d = lists.shape[-2], starts.shape[-1] - 1, sender.shape[-1]
    graphs = sender.numel() // (p * d)
    experts = graphs * lists.shape[-1] // lists.numel()
    return graphs, batch, experts, p, lists.shape[-1] // 2, d


def _tile(d: int, numbers: int) -> tuple[dict[str, int], int]:
    """Edges and units of a tile, the words that hold a bit for each unit, and how many tiles."""
    units = min(WIDTH, power_of_2(d))
    sizes = {"EDGES": max(1, numbers // units), "UNITS": units, "WORDS": triton.cdiv(units, 32)}
    return sizes, triton.cdiv(d, units)


class EdgeScores(Fused):
    """``sum_k w_k relu(s_ik + r_jk)`` of all listed edges, (*F, *K, B, 2E); zero in empty places.

    Nodes (*F, B, P, *K, D), weight (*F, *K, D), lists (*F, B, .). With ``mean`` the two directions
    of an edge are averaged, (*F, *K, B, E). Also the bits of open units (*F, *K, B, 2E, words),
    which are not set in empty places.
    """

    @staticmethod
    def run(sender, receiver, weight, pairs, order, starts, mean=False):
        graphs, *sizes = _sizes(sender, pairs, starts)
        numbers, parts, warps = FORWARD
        tile, tiles = _tile(sender.shape[-1], numbers)
        lead, places = (*weight.shape[:-1], pairs.shape[-2]), pairs.shape[-1]
        out = sender.new_empty(*lead, places // 2 if mean else places)
        shape = (*lead, places, tiles * tile["WORDS"])
        opened = torch.empty(shape, dtype=torch.int32, device=out.device)
        _scores[(graphs, parts)](
            sender, receiver, weight, pairs, starts, out, opened, *sizes,
            MEAN=mean, **tile, TILES=tiles, num_warps=warps,
        )  # fmt: skip
        return out, opened

    @staticmethod
    def keep(inputs, output):
        sender, receiver, weight, _, order, starts = inputs[:6]
        return sender, receiver, weight, output[1], order, starts

    @staticmethod
    def slopes(grad, sender, receiver, weight, opened, order, starts):
        graphs, *sizes = _sizes(sender, order, starts)
        to_sender, to_receiver = torch.empty_like(sender), torch.empty_like(receiver)
        numbers, parts, warps = BACKWARD
        tile, tiles = _tile(sender.shape[-1], numbers)
        to_weight = sender.new_empty(graphs, parts, sender.shape[-1])
        _backward[(graphs, parts, tiles)](
            sender, receiver, weight, opened, order, starts, grad,
            to_sender, to_receiver, to_weight, *sizes,
            MEAN=grad.shape[-1] < order.shape[-1], **tile, num_warps=warps,
        )  # fmt: skip
        # Summing the parts in a fixed order keeps the result the same in every run.
        parts = to_weight.view(*weight.shape[:-1], -1, weight.shape[-1])
        return to_sender, to_receiver, parts.sum(-2)
