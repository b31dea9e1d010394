"""Signed graphs of many FC matrices under many supports, in two passes over memory.

Plain torch would write each intermediate of Eq. (signed_graphs) for every fold and subject.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import power_of_2

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


@torch.library.custom_op("brio::signed_features", mutates_args=())
def signed_features(fc: Tensor, support: Tensor) -> tuple[Tensor, Tensor]:
    """Interleaved normalised channels (F, N, P, 2P) and node descriptors (F, N, P, 3).

    ``fc`` is (N, P, P), shared by all folds, or (F, N, P, P); ``support`` is (F, P, P).
    """
    folds, p = support.shape[0], support.shape[-1]
    count = fc.shape[-3]
    fc, support = fc.contiguous(), support.contiguous()
    scale = fc.new_empty(folds, count, 2, p)
    descriptor = fc.new_empty(folds, count, p, 3)
    out = fc.new_empty(folds, count, p, 2 * p)
    grid = (folds, count, triton.cdiv(p, ROWS))
    sizes = {"ROWS": ROWS, "WIDTH": power_of_2(p)}
    shared = fc.dim() == 3
    as_bytes = support.view(torch.uint8)
    _reduce[grid](fc, as_bytes, scale, descriptor, shared, p, **sizes)
    _normalise[grid](fc, as_bytes, scale, out, shared, p, **sizes)
    return out, descriptor


@signed_features.register_fake
def _(fc, support):
    folds, p = support.shape[0], support.shape[-1]
    count = fc.shape[-3]
    return fc.new_empty(folds, count, p, 2 * p), fc.new_empty(folds, count, p, 3)


@signed_features.register_vmap
def _(info, in_dims, fc, support):
    # One fold calls with supports (1, P, P); under vmap the folds stand in front of that axis.
    fc_dim, support_dim = in_dims
    if support_dim is None:
        support = support.expand(info.batch_size, *support.shape)
    else:
        support = support.movedim(support_dim, 0)
    if fc_dim is not None:
        fc = fc.movedim(fc_dim, 0)
    graph, descriptor = signed_features(fc, support.squeeze(1))
    return (graph.unsqueeze(1), descriptor.unsqueeze(1)), (0, 0)
