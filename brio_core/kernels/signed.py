"""Signed graphs of many FC matrices under many supports, in two passes over memory.

Plain torch would write each intermediate of Eq. (signed_graphs) for every fold and subject.
"""

import math

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Constant, power_of_2

ROWS = 16


@triton.jit
def _load_signed(fc, support, graph, fold, row, shared, p, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """A tile of one subject's FC on the support of one fold: rows by all ROIs."""
    column = tl.arange(0, WIDTH)
    inside = (row < p)[:, None] & (column < p)[None, :]
    offset = row[:, None] * p + column[None, :]
    matrix = tl.where(shared, graph, fold * tl.num_programs(1) + graph).to(tl.int64)
    value = tl.load(fc + matrix * p * p + offset, mask=inside, other=0.0)
    chosen = tl.load(support + fold.to(tl.int64) * p * p + offset, mask=inside, other=0)
    return tl.where(chosen != 0, value, 0.0), chosen


@triton.jit
def _reduce(fc, support, scale, descriptor, shared, p, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    fold, graph = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    value, chosen = _load_signed(fc, support, graph, fold, row, shared, p, ROWS, WIDTH)
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
def _normalise(fc, support, scale, out, shared, p, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    fold, graph = tl.program_id(0), tl.program_id(1)
    row = tl.program_id(2) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)
    value, _ = _load_signed(fc, support, graph, fold, row, shared, p, ROWS, WIDTH)
    subject = (fold * tl.num_programs(1) + graph).to(tl.int64)
    base = scale + subject * 2 * p
    positive = tl.maximum(value, 0.0)
    positive *= tl.load(base + row, mask=row < p, other=0.0)[:, None]
    positive *= tl.load(base + column, mask=column < p, other=0.0)[None, :]
    negative = tl.maximum(-value, 0.0)
    negative *= tl.load(base + p + row, mask=row < p, other=0.0)[:, None]
    negative *= tl.load(base + p + column, mask=column < p, other=0.0)[None, :]
    # Interleaved in registers, so that neighbouring threads write neighbouring numbers.
    both = tl.arange(0, 2 * WIDTH)
    target = out + (subject * p + row[:, None]) * 2 * p + both[None, :]
    keep = (row < p)[:, None] & (both < 2 * p)[None, :]
    tl.store(target, tl.interleave(positive, negative), mask=keep)


class SignedFeatures(Constant):
    """Interleaved normalised channels (*F, N, P, 2P) and node descriptors (*F, N, P, 3).

    ``fc`` is (*F, N, P, P), and ``support`` (*F, P, P).
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
        scale = fc.new_empty(folds, count, 2, p)
        descriptor = fc.new_empty(*lead, count, p, 3)
        out = fc.new_empty(*lead, count, p, 2 * p)
        grid = (folds, count, triton.cdiv(p, ROWS))
        sizes = {"ROWS": ROWS, "WIDTH": power_of_2(p)}
        _reduce[grid](fc, as_bytes, scale, descriptor, shared, p, **sizes)
        _normalise[grid](fc, as_bytes, scale, out, shared, p, **sizes)
        return out, descriptor
