"""Self-attention with heads of a few units in plain float32; no score of a pair ever meets memory.

Matrix products would be idle with two units a head, and their results would be large. A program
holds the pairs of a few regions with all others, and sums over the others within its threads.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused, power_of_2

# Regions of a program, and numbers that one of its threads holds.
OWN, SHARE = 32, 32
LOG2_E = 1.4426950408889634


@triton.jit
def _place(node, nodes, heads):
    """Where the number of a node and this program's head is."""
    graph, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    return (graph.to(tl.int64) * nodes + node) * heads + head


@triton.jit
def _unit(values, node, unit, nodes, heads, UNITS: tl.constexpr):
    """One unit of this program's head at some nodes of its graph, zero beyond the last."""
    place = _place(node, nodes, heads) * UNITS + unit
    return tl.load(values + place, mask=node < nodes, other=0.0)


@triton.jit
def _products(left, right, own, other, nodes, heads, factor, UNITS: tl.constexpr):
    """Products of two vectors for all pairs, (other, own)."""
    one = _unit(left, own, 0, nodes, heads, UNITS) * factor
    total = _unit(right, other, 0, nodes, heads, UNITS)[:, None] * one[None, :]
    for unit in tl.static_range(1, UNITS):
        one = _unit(left, own, unit, nodes, heads, UNITS) * factor
        total += _unit(right, other, unit, nodes, heads, UNITS)[:, None] * one[None, :]
    return total


@triton.jit
def _collect(weights, values, out, own, other, nodes, heads, factor, UNITS: tl.constexpr):
    """Store weighted sums of what the others have, times a factor of every own node."""
    place = _place(own, nodes, heads) * UNITS
    for unit in tl.static_range(UNITS):
        value = _unit(values, other, unit, nodes, heads, UNITS)
        total = tl.sum(weights * value[:, None], 0) * factor
        tl.store(out + place + unit, total, mask=own < nodes)


@triton.jit
def _inner(grad, heard, node, nodes, heads, UNITS: tl.constexpr):
    """What softmax takes away from the slopes of a receiver's scores."""
    total = _unit(grad, node, 0, nodes, heads, UNITS) * _unit(heard, node, 0, nodes, heads, UNITS)
    for unit in tl.static_range(1, UNITS):
        part = _unit(grad, node, unit, nodes, heads, UNITS)
        total += part * _unit(heard, node, unit, nodes, heads, UNITS)
    return total


@triton.jit
def _forward(
    query, sent, value, out, levels, nodes, heads, scale,
    UNITS: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    own, other = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, OTHERS)
    score = _products(query, sent, own, other, nodes, heads, scale, UNITS)
    score = tl.where((other < nodes)[:, None], score, -1.0e30)
    largest = tl.max(score, 0)
    power = tl.exp2(score - largest[None, :])
    total = tl.sum(power, 0)
    _collect(power, value, out, own, other, nodes, heads, 1.0 / total, UNITS)
    place = _place(own, nodes, heads)
    tl.store(levels + place, largest + tl.log2(total), mask=own < nodes)


@triton.jit
def _to_receivers(
    query, sent, value, heard, levels, grad, to_query, nodes, heads, scale, slope,
    UNITS: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    own, other = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, OTHERS)
    level = tl.load(levels + _place(own, nodes, heads), mask=own < nodes, other=0.0)
    score = _products(query, sent, own, other, nodes, heads, scale, UNITS)
    through = _products(grad, value, own, other, nodes, heads, 1.0, UNITS)
    through -= _inner(grad, heard, own, nodes, heads, UNITS)[None, :]
    # Beyond the last sender there is nothing to collect.
    slopes = tl.exp2(score - level[None, :]) * through
    _collect(slopes, sent, to_query, own, other, nodes, heads, slope, UNITS)


@triton.jit
def _to_senders(
    query, sent, value, heard, levels, grad, to_sent, to_value, nodes, heads, scale, slope,
    UNITS: tl.constexpr, OWN: tl.constexpr, OTHERS: tl.constexpr,
):  # fmt: skip
    own, other = tl.program_id(1) * OWN + tl.arange(0, OWN), tl.arange(0, OTHERS)
    level = tl.load(levels + _place(other, nodes, heads), mask=other < nodes, other=0.0)
    score = _products(sent, query, own, other, nodes, heads, scale, UNITS)
    power = tl.exp2(score - level[:, None])
    _collect(power, grad, to_value, own, other, nodes, heads, 1.0, UNITS)
    through = _products(value, grad, own, other, nodes, heads, 1.0, UNITS)
    through -= _inner(grad, heard, other, nodes, heads, UNITS)[:, None]
    _collect(power * through, query, to_sent, own, other, nodes, heads, slope, UNITS)


def _launch(kernel: Any, heads: int, tensors: tuple, *numbers: float) -> None:
    query = tensors[0]
    nodes, width = query.shape[-2:]
    graphs, others = query.numel() // (nodes * width), max(16, power_of_2(nodes))
    kernel[(graphs * heads, triton.cdiv(nodes, OWN))](
        *tensors, nodes, heads, *numbers, UNITS=width // heads, OWN=OWN, OTHERS=others,
        num_warps=min(16, max(1, OWN * others // (32 * SHARE))),
    )  # fmt: skip


class SelfAttention(Fused):
    """Queries, keys and values (..., P, H * U) to what regions hear, (..., P, H * U).

    Keys and values are taken relative to those of the first region. That changes no result, and
    where regions are alike, differences are not lost beside what they share. Also gives what
    backward reads; of softmax, the base-2 logarithms of denominators (..., P, H).
    """

    @staticmethod
    def run(query, sent, value, heads, scale):
        first = value[..., :1, :]
        sent, value = sent - sent[..., :1, :], value - first
        heard, levels = torch.empty_like(query), query.new_empty(*query.shape[:-1], heads)
        _launch(_forward, heads, (query, sent, value, heard, levels), scale * LOG2_E)
        return heard + first, sent, value, heard, levels

    @staticmethod
    def keep(inputs, output):
        return inputs[0], *output[1:], *inputs[3:]

    @staticmethod
    def slopes(grad, query, sent, value, heard, levels, heads, scale):
        kept = (query, sent, value, heard, levels, grad)
        to_query, to_sent, to_value = (torch.empty_like(query) for _ in range(3))
        scales = (scale * LOG2_E, scale)
        _launch(_to_receivers, heads, (*kept, to_query), *scales)
        _launch(_to_senders, heads, (*kept, to_sent, to_value), *scales)
        return to_query, to_sent, to_value
