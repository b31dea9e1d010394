"""BRIO's signed layers: propagation along both channels, residual and norm in one kernel.

Both channels of Eq. (signed_graphs) are kept as one matrix, the positive one less the negative
one, of half-precision numbers. Their 11 bits are those that TF32 products keep of any number. A
tile is read once, split by sign, and multiplied by the messages while it is in registers.
"""

import math

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Constant, Fused, power_of_2
from brio_core.kernels.residual_norm import ROWS as NORMED_AT_ONCE
from brio_core.kernels.residual_norm import residual_norm_slopes

# Rows of a graph that a program works on, and columns that it reads at a time.
TILE = {"ROWS": 128, "COLUMNS": 32, "num_warps": 8, "num_stages": 3}
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
def _propagate(
    graph, messages, factor, SECOND: tl.constexpr, WIDE: tl.constexpr, row, p,
    PITCH: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Both channels of a graph times the messages of its ROIs, WIDE numbers apart: (ROWS, D) each.

    The messages of the second channel begin SECOND numbers behind those of the first. All are
    multiplied by a factor before they lose bits.
    """
    d = tl.arange(0, D)
    positive = tl.zeros((ROWS, D), tl.float32)
    negative = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, PITCH, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = (row < p)[:, None] & (column < PITCH)[None, :]
        value = tl.load(graph + row[:, None] * PITCH + column[None, :], mask=inside, other=0.0)
        source = messages + column[:, None] * WIDE + d[None, :]
        sent = (tl.load(source, mask=(column < p)[:, None], other=0.0) * factor).to(tl.float16)
        positive = tl.dot(tl.maximum(value, 0.0).to(tl.float16), sent, positive)
        if SECOND:
            sent = tl.load(source + SECOND, mask=(column < p)[:, None], other=0.0)
            sent = (sent * factor).to(tl.float16)
        negative = tl.dot(tl.maximum(-value, 0.0).to(tl.float16), sent, negative)
    return positive, negative


@triton.jit
def _forward(
    graphs, sent, hidden, weight, bias, pre, out, p, eps, KEEP: tl.constexpr,
    PITCH: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    fold, d = tl.program_id(0), tl.arange(0, D)
    subject = (fold * tl.num_programs(1) + tl.program_id(1)).to(tl.int64)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    graphs += subject * p * PITCH
    sent += subject * p * 3 * D
    positive, negative = _propagate(
        graphs, sent + D, 1.0, D, 3 * D, row, p, PITCH, D, ROWS, COLUMNS
    )
    inside = (row < p)[:, None]
    received = positive + negative
    received += tl.load(sent + row[:, None] * 3 * D + d[None, :], mask=inside, other=0.0)
    offset = (subject * p + row[:, None]) * D + d[None, :]
    if KEEP:
        tl.store(pre + offset, received, mask=inside)
    value = tl.load(hidden + offset, mask=inside, other=0.0)
    value += 0.5 * received * (1 + tl.erf(received * 0.7071067811865476))
    centred = value - (tl.sum(value, 1) / D)[:, None]
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    result = centred * inverse[:, None] * tl.load(weight + fold * D + d)[None, :]
    result += tl.load(bias + fold * D + d)[None, :]
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _backward(
    graphs, to_sent, largest, nodes, p, AT_ONCE: tl.constexpr, OVERLAP: tl.constexpr,
    PITCH: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Gradients of both messages from that of what was received, which stands before them.

    Graphs are symmetric, so this is propagation once more. Gradients are small: those of a graph
    are scaled by a power of two, so that half precision holds them.
    """
    fold, graph, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    subject = (fold * tl.num_programs(1) + graph).to(tl.int64)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    # The largest gradients of the rows that were normalised together, and that overlap the graph.
    part = graph * p // AT_ONCE + tl.arange(0, OVERLAP)
    parts = tl.cdiv(nodes, AT_ONCE)
    last = ((graph + 1) * p - 1) // AT_ONCE
    found = tl.load(largest + fold * parts + part, mask=part <= last, other=0.0)
    exponent = tl.ceil(tl.log2(tl.maximum(tl.max(found, 0), 1.0e-30)))
    graphs += subject * p * PITCH
    to_sent += subject * p * 3 * D
    positive, negative = _propagate(
        graphs, to_sent, tl.exp2(-exponent), 0, 3 * D, row, p, PITCH, D, ROWS, COLUMNS
    )
    back = tl.exp2(exponent)
    inside = (row < p)[:, None]
    target = to_sent + row[:, None] * 3 * D + d[None, :]
    tl.store(target + D, positive * back, mask=inside)
    tl.store(target + 2 * D, negative * back, mask=inside)


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
        sent = hidden.flatten(-3, -2).half() @ weights.half().mT
        out = torch.empty_like(hidden)
        pre = torch.empty_like(hidden) if kept else hidden.new_empty(*lead, 0)
        _forward[(math.prod(lead), count, triton.cdiv(p, TILE["ROWS"]))](
            graphs, sent, hidden, norm_weight, norm_bias, pre, out, p, eps,
            KEEP=kept, PITCH=graphs.shape[-1], D=width, **TILE,
        )  # fmt: skip
        return out, pre

    @staticmethod
    def keep(inputs, output):
        hidden, weights, norm_weight, _, graphs, eps, _ = inputs
        return hidden, weights, norm_weight, graphs, output[1], eps

    @staticmethod
    def slopes(grad, hidden, weights, norm_weight, graphs, pre, eps):
        *lead, count, p, width = hidden.shape
        folds, nodes = math.prod(lead), count * p
        to_sent = hidden.new_empty(*lead, nodes, 3 * width)
        largest = hidden.new_empty(folds, triton.cdiv(nodes, NORMED_AT_ONCE))
        to_hidden, *sums = residual_norm_slopes(
            grad, hidden, pre, None, norm_weight, eps, to_sent, largest
        )
        overlap = power_of_2(triton.cdiv(p, NORMED_AT_ONCE) + 1)
        _backward[(folds, count, triton.cdiv(p, TILE["ROWS"]))](
            graphs, to_sent, largest, nodes, p, AT_ONCE=NORMED_AT_ONCE, OVERLAP=overlap,
            PITCH=graphs.shape[-1], D=width, **TILE,
        )  # fmt: skip
        flat = (folds, nodes, -1)
        to_hidden = torch.baddbmm(
            to_hidden.view(flat), to_sent.view(flat), weights.view(folds, 3 * width, width)
        )
        to_weights = to_sent.mT @ hidden.flatten(-3, -2)
        return to_hidden.view_as(hidden), to_weights, *sums
