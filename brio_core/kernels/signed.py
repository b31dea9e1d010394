"""BRIO's signed layers straight from FC matrices; no signed graph is ever written.

Both channels of Eq. (signed_graphs) are parts of one matrix. A tile of FC is read, masked by the
support, split by sign and multiplied by messages while it is in registers. Only the scales that
normalise the channels are kept of a graph. FC that all folds share is read from the cache by all
but the first of them.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Constant, Fused, power_of_2
from brio_core.kernels.residual_norm import residual_norm_slopes

# Rows of a tile of FC and columns that are read at a time.
TILE = {"ROWS": 64, "COLUMNS": 32}


@triton.jit
def _load_signed(fc, support, fold, graph, row, column, p, SHARED: tl.constexpr):
    """A tile of one subject's FC on the support of one fold, and that tile of the support."""
    inside = (row < p)[:, None] & (column < p)[None, :]
    offset = row[:, None] * p + column[None, :]
    matrix = (graph if SHARED else fold * tl.num_programs(1) + graph).to(tl.int64)
    value = tl.load(fc + matrix * p * p + offset, mask=inside, other=0.0)
    chosen = tl.load(support + fold.to(tl.int64) * p * p + offset, mask=inside, other=0)
    return tl.where(chosen != 0, value, 0.0), chosen


@triton.jit
def _reduce(
    fc, support, scale, descriptor, p,
    SHARED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    fold, graph = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    value, chosen = _load_signed(fc, support, fold, graph, row, column, p, SHARED)
    positive = tl.sum(tl.maximum(value, 0.0), 1)
    negative = tl.sum(tl.maximum(-value, 0.0), 1)
    square = tl.sum(value * value, 1)
    degree = tl.maximum(tl.sum(tl.where(chosen != 0, 1.0, 0.0), 1), 1.0)
    subject = (fold * tl.num_programs(1) + graph).to(tl.int64)
    keep = row < p
    target = scale + subject * 2 * p + row
    tl.store(target, tl.where(positive > 0, 1 / tl.sqrt(positive), 0.0), mask=keep)
    tl.store(target + p, tl.where(negative > 0, 1 / tl.sqrt(negative), 0.0), mask=keep)
    target = descriptor + (subject * p + row) * 3
    tl.store(target, positive / degree, mask=keep)
    tl.store(target + 1, negative / degree, mask=keep)
    tl.store(target + 2, tl.sqrt(square / degree), mask=keep)


@triton.jit
def _propagate(
    fc, support, scale, messages, SECOND: tl.constexpr, row, p, SHARED: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Both normalised channels times messages (..., P, 3 D), each (ROWS, D).

    The messages of the second channel begin SECOND numbers behind those of the first.
    """
    fold, graph, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    subject = (fold * tl.num_programs(1) + graph).to(tl.int64)
    scale += subject * 2 * p
    messages += subject * p * 3 * D
    positive = tl.zeros((ROWS, D), tl.float32)
    negative = tl.zeros((ROWS, D), tl.float32)
    for start in range(0, p, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        value, _ = _load_signed(fc, support, fold, graph, row, column, p, SHARED)
        known = column < p
        source = messages + column[:, None] * 3 * D + d[None, :]
        sent = tl.load(source, mask=known[:, None], other=0.0)
        sent *= tl.load(scale + column, mask=known, other=0.0)[:, None]
        positive = tl.dot(tl.maximum(value, 0.0), sent, positive, input_precision=PRECISION)
        sent = tl.load(source + SECOND, mask=known[:, None], other=0.0)
        sent *= tl.load(scale + p + column, mask=known, other=0.0)[:, None]
        negative = tl.dot(tl.maximum(-value, 0.0), sent, negative, input_precision=PRECISION)
    positive *= tl.load(scale + row, mask=row < p, other=0.0)[:, None]
    negative *= tl.load(scale + p + row, mask=row < p, other=0.0)[:, None]
    return positive, negative


@triton.jit
def _forward(
    fc, support, scale, sent, hidden, weight, bias, pre, out, p, eps,
    KEEP: tl.constexpr, SHARED: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    fold, graph, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    positive, negative = _propagate(
        fc, support, scale, sent + D, D, row, p, SHARED, D, ROWS, COLUMNS, PRECISION
    )
    inside = (row < p)[:, None]
    node = (fold * tl.num_programs(1) + graph).to(tl.int64) * p + row[:, None]
    offset = node * D + d[None, :]
    received = positive + negative
    received += tl.load(sent + node * 3 * D + d[None, :], mask=inside, other=0.0)
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
    fc, support, scale, to_sent, p, SHARED: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gradients of both messages from that of what was received, which stands before them.

    FC and supports are symmetric, so this is propagation once more.
    """
    fold, graph, d = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    positive, negative = _propagate(
        fc, support, scale, to_sent, 0, row, p, SHARED, D, ROWS, COLUMNS, PRECISION
    )
    inside = (row < p)[:, None]
    node = (fold * tl.num_programs(1) + graph).to(tl.int64) * p + row[:, None]
    target = to_sent + node * 3 * D + d[None, :]
    tl.store(target + D, positive, mask=inside)
    tl.store(target + 2 * D, negative, mask=inside)


def _folds(fc: Tensor, support: Tensor) -> tuple[int, bool, Tensor, Tensor]:
    """Number of folds, whether they share FC, FC to be read, and the support as bytes."""
    folds = math.prod(fc.shape[:-3])
    # FC that all folds share is expanded by ``vmap``, and read once.
    shared = folds > 1 and fc.stride(0) == 0
    as_bytes = support.contiguous().view(torch.uint8)
    return folds, shared, fc[0].contiguous() if shared else fc.contiguous(), as_bytes


class SignedScales(Constant):
    """What normalises both channels (*F, N, 2, P), and node descriptors (*F, N, P, 3).

    ``fc`` is (*F, N, P, P), and ``support`` (*F, P, P).
    """

    contiguous = False

    @staticmethod
    def run(fc, support):
        *lead, count, p, _ = fc.shape
        folds, shared, fc, as_bytes = _folds(fc, support)
        scale = fc.new_empty(*lead, count, 2, p)
        descriptor = fc.new_empty(*lead, count, p, 3)
        grid = (folds, count, triton.cdiv(p, 16))
        sizes = {"SHARED": shared, "ROWS": 16, "WIDTH": power_of_2(p)}
        _reduce[grid](fc, as_bytes, scale, descriptor, p, **sizes)
        return scale, descriptor


class SignedStep(Fused):
    """``norm(hidden + GELU(own + positive + negative))``, and what GELU saw, if it is kept.

    ``hidden`` is (*F, N, P, D). The rows of ``weights`` (*F, 3 D, D) make what a node sends to
    itself, along positive and along negative edges; ``scale`` is that of :class:`SignedScales`.
    """

    contiguous = False

    @staticmethod
    def run(hidden, weights, norm_weight, norm_bias, fc, support, scale, eps, precision, kept):
        *_, count, p, width = hidden.shape
        folds, shared, fc, as_bytes = _folds(fc, support)
        hidden = hidden.contiguous()
        sent = (hidden.flatten(-3, -2) @ weights.mT).to(hidden.dtype).contiguous()
        out = torch.empty_like(hidden)
        pre = torch.empty_like(hidden) if kept else hidden.new_empty(*hidden.shape[:-3], 0)
        grid = (folds, count, triton.cdiv(p, TILE["ROWS"]))
        _forward[grid](
            fc, as_bytes, scale.contiguous(), sent, hidden, norm_weight.contiguous(),
            norm_bias.contiguous(), pre, out, p, eps, KEEP=kept, SHARED=shared, D=width,
            PRECISION=precision, **TILE,
        )  # fmt: skip
        return out, pre

    @staticmethod
    def keep(inputs, output):
        hidden, weights, norm_weight, _, *graph, eps, precision, _ = inputs
        return hidden, weights, norm_weight, *graph, output[1], eps, precision

    @staticmethod
    def slopes(grad, hidden, weights, norm_weight, fc, support, scale, pre, eps, precision):
        *_, count, p, width = hidden.shape
        folds, shared, fc, as_bytes = _folds(fc, support)
        hidden = hidden.contiguous()
        to_sent = hidden.new_empty(*hidden.shape[:-3], count * p, 3 * width)
        to_hidden, *sums = residual_norm_slopes(
            grad.contiguous(), hidden, pre.contiguous(), None, norm_weight.contiguous(), eps,
            to_sent,
        )  # fmt: skip
        _backward[(folds, count, triton.cdiv(p, TILE["ROWS"]))](
            fc, as_bytes, scale.contiguous(), to_sent, p, SHARED=shared, D=width,
            PRECISION=precision, **TILE,
        )  # fmt: skip
        to_hidden += (to_sent @ weights).view_as(hidden)
        to_weights = to_sent.mT @ hidden.flatten(-3, -2)
        return to_hidden, to_weights.to(weights.dtype), *sums
