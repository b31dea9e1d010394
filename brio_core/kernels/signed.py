"""BRIO's signed layers: propagation along both channels, residual and norm in one kernel.

Both channels of Eq. (signed_graphs) are kept as one matrix, the positive one less the negative
one, of half-precision numbers. Their 11 bits are those that TF32 products keep of any number. A
tile is read once, split by sign, and multiplied by the messages while it is in registers. Messages
and their gradients are made where they are needed, and never written.
"""

import math

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Constant, Fused, power_of_2
from brio_core.kernels.residual_norm import BACK as NORM_BACK
from brio_core.kernels.residual_norm import residual_norm_slopes

# Rows of a graph that a program works on, and columns that it reads at a time: the fastest on an
# H200, forward for graphs of up to 128 ROIs and for larger ones, and back.
NARROW = {"ROWS": 64, "COLUMNS": 64, "num_warps": 4, "num_stages": 2}
WIDE = {"ROWS": 128, "COLUMNS": 64, "num_warps": 4, "num_stages": 3}
BACK = {"ROWS": 128, "COLUMNS": 128, "num_warps": 8, "num_stages": 2}
# Graphs whose gradients of the weights one program sums.
SUMMED = 4
# Rows of a graph lie a multiple of so many numbers apart, so that many are read at once.
ALIGNED = 16


@triton.jit
def _load_fc(fc, support, row, P: tl.constexpr, SHARED: tl.constexpr, WIDTH: tl.constexpr):
    """Rows of one subject's FC on the support of one fold, and of the support."""
    fold, graph, column = tl.program_id(0), tl.program_id(1), tl.arange(0, WIDTH)
    inside = (row < P)[:, None] & (column < P)[None, :]
    offset = row[:, None] * P + column[None, :]
    matrix = (graph if SHARED else fold * tl.num_programs(1) + graph).to(tl.int64)
    value = tl.load(fc + matrix * P * P + offset, mask=inside, other=0.0)
    chosen = tl.load(support + fold.to(tl.int64) * P * P + offset, mask=inside, other=0)
    return tl.where(chosen != 0, value, 0.0), chosen


@triton.jit
def _reduce(
    fc, support, scale, descriptor,
    P: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    fold, graph = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    value, chosen = _load_fc(fc, support, row, P, SHARED, WIDTH)
    positive = tl.sum(tl.maximum(value, 0.0), 1)
    negative = tl.sum(tl.maximum(-value, 0.0), 1)
    square = tl.sum(value * value, 1)
    degree = tl.maximum(tl.sum(tl.where(chosen != 0, 1.0, 0.0), 1), 1.0)
    subject = (fold * tl.num_programs(1) + graph).to(tl.int64)
    keep = row < P
    target = scale + subject * 2 * P + row
    tl.store(target, tl.where(positive > 0, 1 / tl.sqrt(positive), 0.0), mask=keep)
    tl.store(target + P, tl.where(negative > 0, 1 / tl.sqrt(negative), 0.0), mask=keep)
    target = descriptor + (subject * P + row) * 3
    tl.store(target, positive / degree, mask=keep)
    tl.store(target + 1, negative / degree, mask=keep)
    tl.store(target + 2, tl.sqrt(square / degree), mask=keep)


@triton.jit
def _normalise(
    fc, support, scale, out,
    P: tl.constexpr, PITCH: tl.constexpr,
    SHARED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    fold, graph = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    value, _ = _load_fc(fc, support, row, P, SHARED, WIDTH)
    subject = (fold * tl.num_programs(1) + graph).to(tl.int64)
    base = scale + subject * 2 * P
    positive = tl.load(base + row, mask=row < P, other=0.0)[:, None]
    positive *= tl.load(base + column, mask=column < P, other=0.0)[None, :]
    negative = tl.load(base + P + row, mask=row < P, other=0.0)[:, None]
    negative *= tl.load(base + P + column, mask=column < P, other=0.0)[None, :]
    value *= tl.where(value > 0, positive, negative)
    target = out + (subject * P + row[:, None]) * PITCH + column[None, :]
    keep = (row < P)[:, None] & (column < PITCH)[None, :]
    tl.store(target, value.to(tl.float16), mask=keep)


@triton.jit
def _tile(graph, row, column, p, PITCH: tl.constexpr):
    """A tile of a graph; zero beyond its edges."""
    inside = (row < p)[:, None] & (column < PITCH)[None, :]
    return tl.load(graph + row[:, None] * PITCH + column[None, :], mask=inside, other=0.0)


@triton.jit
def _nodes(values, row, p, factor, D: tl.constexpr):
    """The features of some nodes, times a factor, in half precision."""
    source = values + row[:, None] * D + tl.arange(0, D)[None, :]
    return (tl.load(source, mask=(row < p)[:, None], other=0.0) * factor).to(tl.float16)


@triton.jit
def _weights(weights, part: tl.constexpr, D: tl.constexpr):
    """One of the three square matrices of a layer."""
    d = tl.arange(0, D)
    return tl.load(weights + (part * D + d[:, None]) * D + d[None, :])


@triton.jit
def _forward(
    graphs, hidden, weights, weight, bias, pre, out, p, eps, KEEP: tl.constexpr,
    PITCH: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A layer. Messages are made where they are received, so that nobody writes or reads them."""
    fold, d = tl.program_id(0), tl.arange(0, D)
    subject = (fold * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    graphs += subject * p * PITCH
    hidden += subject * p * D
    weights += fold * 3 * D * D
    received = tl.dot(_nodes(hidden, row, p, 1.0, D), tl.trans(_weights(weights, 0, D)))
    along_positive = tl.trans(_weights(weights, 1, D))
    along_negative = tl.trans(_weights(weights, 2, D))
    for start in range(0, PITCH, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        value = _tile(graphs, row, column, p, PITCH)
        sender = _nodes(hidden, column, p, 1.0, D)
        sent = tl.dot(sender, along_positive).to(tl.float16)
        received = tl.dot(tl.maximum(value, 0.0).to(tl.float16), sent, received)
        sent = tl.dot(sender, along_negative).to(tl.float16)
        received = tl.dot(tl.maximum(-value, 0.0).to(tl.float16), sent, received)
    inside = (row < p)[:, None]
    offset = row[:, None] * D + d[None, :]
    if KEEP:
        tl.store(pre + subject * p * D + offset, received, mask=inside)
    value = tl.load(hidden + offset, mask=inside, other=0.0)
    value += 0.5 * received * (1 + tl.erf(received * 0.7071067811865476))
    centred = value - (tl.sum(value, 1) / D)[:, None]
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    result = centred * inverse[:, None] * tl.load(weight + fold * D + d)[None, :]
    result += tl.load(bias + fold * D + d)[None, :]
    tl.store(out + subject * p * D + offset, result, mask=inside)


@triton.jit
def _backward(
    graphs, hidden, weights, to_pre, largest, to_hidden, to_weights, count, p,
    AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr, GRAPHS: tl.constexpr,
    PITCH: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add to the gradient of ``hidden``, and sum that of the weights over GRAPHS graphs.

    Graphs are symmetric, so the gradients of messages are those of what was received, propagated
    once more. They are small: those of a graph are scaled by a power of two, so that half
    precision holds them.
    """
    fold, d = tl.program_id(0), tl.arange(0, D)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    weights += fold * 3 * D * D
    own_sum = tl.zeros((D, D), tl.float32)
    positive_sum = tl.zeros((D, D), tl.float32)
    negative_sum = tl.zeros((D, D), tl.float32)
    for turn in range(GRAPHS):
        graph = tl.program_id(1) * GRAPHS + turn
        subject = (fold * count + graph).to(tl.int64)
        # Of a graph behind the last nothing is read or written.
        size = tl.where(graph < count, p, 0)
        # The largest gradients of rows that were normalised together, and that overlap the graph.
        part = graph * p // AT_ONCE + tl.arange(0, OVERLAP)
        last = ((graph + 1) * p - 1) // AT_ONCE
        found = tl.load(
            largest + fold * tl.cdiv(count * p, AT_ONCE) + part,
            mask=(part <= last) & (graph < count), other=0.0,
        )  # fmt: skip
        exponent = tl.ceil(tl.log2(tl.maximum(tl.max(found, 0), 1.0e-30)))
        factor, back = tl.exp2(-exponent), tl.exp2(exponent)
        received = to_pre + subject * p * D
        positive = tl.zeros((ROWS, D), tl.float32)
        negative = tl.zeros((ROWS, D), tl.float32)
        for start in range(0, PITCH, COLUMNS):
            column = start + tl.arange(0, COLUMNS)
            value = _tile(graphs + subject * p * PITCH, row, column, size, PITCH)
            sent = _nodes(received, column, size, factor, D)
            positive = tl.dot(tl.maximum(value, 0.0).to(tl.float16), sent, positive)
            negative = tl.dot(tl.maximum(-value, 0.0).to(tl.float16), sent, negative)
        own = _nodes(received, row, size, factor, D)
        first, second = positive.to(tl.float16), negative.to(tl.float16)
        change = tl.dot(own, _weights(weights, 0, D))
        change = tl.dot(first, _weights(weights, 1, D), change)
        change = tl.dot(second, _weights(weights, 2, D), change)
        inside = (row < size)[:, None]
        target = to_hidden + (subject * p + row[:, None]) * D + d[None, :]
        tl.store(target, tl.load(target, mask=inside, other=0.0) + change * back, mask=inside)
        node = _nodes(hidden + subject * p * D, row, size, 1.0, D)
        own_sum += tl.dot(tl.trans(own), node) * back
        positive_sum += tl.dot(tl.trans(first), node) * back
        negative_sum += tl.dot(tl.trans(second), node) * back
    program = (fold * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2)
    to_weights += (program + tl.program_id(2)) * 3 * D * D
    target = to_weights + d[:, None] * D + d[None, :]
    tl.store(target, own_sum)
    tl.store(target + D * D, positive_sum)
    tl.store(target + 2 * D * D, negative_sum)


class SignedGraphs(Constant):
    """Signed graphs (*F, N, P, pitch) in half precision, and node descriptors (*F, N, P, 3).

    ``fc`` is (*F, N, P, P), and ``support`` (*F, P, P). Columns beyond P are zero.
    """

    contiguous = False

    @staticmethod
    def run(fc, support):
        *lead, count, p, _ = fc.shape
        folds = math.prod(lead)
        # FC that all folds share is expanded by ``vmap``, and read once.
        shared = folds > 1 and fc.stride(0) == 0
        fc = fc[0].contiguous() if shared else fc.contiguous()
        as_bytes = support.contiguous().view(torch.uint8)
        pitch = -(-p // ALIGNED) * ALIGNED
        scale = fc.new_empty(folds, count, 2, p)
        descriptor = fc.new_empty(*lead, count, p, 3)
        out = fc.new_empty(*lead, count, p, pitch, dtype=torch.float16)
        grid = (folds, count, triton.cdiv(p, 16))
        sizes = {"P": p, "SHARED": shared, "ROWS": 16, "WIDTH": power_of_2(p)}
        _reduce[grid](fc, as_bytes, scale, descriptor, **sizes)
        _normalise[grid](fc, as_bytes, scale, out, PITCH=pitch, **sizes)
        return out, descriptor


class SignedStep(Fused):
    """``norm(hidden + GELU(own + positive + negative))``, and what GELU saw, if it is kept.

    ``hidden`` is (*F, N, P, D). The rows of ``weights`` (*F, 3 D, D) make what a node sends to
    itself, along positive and along negative edges of ``graphs`` (*F, N, P, pitch).
    """

    @staticmethod
    def run(hidden, weights, norm_weight, norm_bias, graphs, eps, kept):
        *lead, count, p, width = hidden.shape
        out = torch.empty_like(hidden)
        pre = torch.empty_like(hidden) if kept else hidden.new_empty(*lead, 0)
        tile = NARROW if p <= 128 else WIDE
        _forward[(math.prod(lead), count, triton.cdiv(p, tile["ROWS"]))](
            graphs, hidden, weights.half(), norm_weight, norm_bias, pre, out, p, eps,
            KEEP=kept, PITCH=graphs.shape[-1], D=width, **tile,
        )  # fmt: skip
        return out, pre

    @staticmethod
    def keep(inputs, output):
        hidden, weights, norm_weight, _, graphs, eps, _ = inputs
        return hidden, weights, norm_weight, graphs, output[1], eps

    @staticmethod
    def slopes(grad, hidden, weights, norm_weight, graphs, pre, eps):
        *lead, count, p, width = hidden.shape
        folds = math.prod(lead)
        to_pre, together = torch.empty_like(hidden), NORM_BACK["ROWS"]
        largest = hidden.new_empty(folds, triton.cdiv(count * p, together))
        to_hidden, *sums = residual_norm_slopes(
            grad, hidden, pre, None, norm_weight, eps, to_pre, largest
        )
        overlap = power_of_2(triton.cdiv(p, together) + 1)
        grid = (folds, triton.cdiv(count, SUMMED), triton.cdiv(p, BACK["ROWS"]))
        to_weights = hidden.new_empty(folds, grid[1] * grid[2], 3 * width, width)
        _backward[grid](
            graphs, hidden, weights.half(), to_pre, largest, to_hidden, to_weights, count, p,
            AT_ONCE=together, OVERLAP=overlap, GRAPHS=SUMMED,
            PITCH=graphs.shape[-1], D=width, **BACK,
        )  # fmt: skip
        return to_hidden, to_weights.sum(1).view_as(weights), *sums
