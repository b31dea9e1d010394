"""Random subgraphs, straight from the lists of edges to dense matrices."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.uniform import draw

BLOCK = 2048


@triton.jit
def _drawn(rate, slots, keys, out, number, batch, e, p, size, BLOCK: tl.constexpr):
    graph = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    slot = tl.load(slots + graph * size + column, mask=inside, other=e)
    chance = tl.load(rate + graph * e + slot, mask=slot < e, other=0.0)
    key = tl.load(keys + graph // batch).to(tl.uint32)
    # Both directions of an edge ask for the same number.
    place = (number * batch + graph % batch) * e + slot
    kept = (draw(place, key) < chance) | (column // p == column % p)
    tl.store(out + graph * size + column, tl.where(kept, 1.0, 0.0), mask=inside)


@triton.jit
def _gather(first, second, pairs, out, e, size, BLOCK: tl.constexpr):
    """Sums of both entries of every edge in two matrices."""
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    listed = place < e
    there = tl.load(pairs + graph * 2 * e + place, mask=listed, other=0)
    back = tl.load(pairs + graph * 2 * e + e + place, mask=listed, other=0)
    # Flat index 0 marks a place that is left empty.
    total = tl.load(first + graph * size + there, mask=there > 0, other=0.0)
    total += tl.load(first + graph * size + back, mask=back > 0, other=0.0)
    total += tl.load(second + graph * size + there, mask=there > 0, other=0.0)
    total += tl.load(second + graph * size + back, mask=back > 0, other=0.0)
    tl.store(out + graph * e + place, total, mask=listed)


class DrawnGraphs(torch.autograd.Function):
    """Draw ``number`` of edges with chances (*folds, B, E), as (*folds, B, P * P), given twice.

    Two layers read one graph, each by a name of its own: their gradients then meet at the edges,
    and need not be added as matrices. The diagonal is 1. An edge passes its gradient on to its
    chance. Keys (*folds) have their stream folded in.
    """

    @staticmethod
    def forward(rate, pairs, slots, keys, number):
        rate, slots, keys = rate.contiguous(), slots.contiguous(), keys.contiguous()
        (*lead, batch, e), size = rate.shape, slots.shape[-1]
        out = rate.new_empty(*lead, batch, size)
        _drawn[(keys.numel() * batch, triton.cdiv(size, BLOCK))](
            rate, slots, keys, out, number, batch, e, round(size**0.5), size, BLOCK=BLOCK
        )
        return out, out.detach()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, *grads):
        return _DrawnGraphsBackward.apply(*grads, *ctx.saved_tensors), None, None, None, None

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return DrawnGraphs.apply(*to_front(info, in_dims, inputs[:-1]), inputs[-1]), (0, 0)


class _DrawnGraphsBackward(Derivative):
    @staticmethod
    def forward(first, second, pairs):
        first, second, pairs = first.contiguous(), second.contiguous(), pairs.contiguous()
        size, e = first.shape[-1], pairs.shape[-1] // 2
        out = first.new_empty(*first.shape[:-1], e)
        _gather[(first.numel() // size, triton.cdiv(e, BLOCK))](
            first, second, pairs, out, e, size, BLOCK=BLOCK
        )
        return out

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return _DrawnGraphsBackward.apply(*to_front(info, in_dims, tensors)), 0
