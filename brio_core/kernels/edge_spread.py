"""Values of listed edges into dense matrices, and back: each number is read and written once."""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front

BLOCK = 2048


@triton.jit
def _spread(values, slots, out, batch, graphs_per_fold, e, size, BLOCK: tl.constexpr):
    graph = tl.program_id(0).to(tl.int64)
    row = graph // graphs_per_fold * batch + graph % batch
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < size
    slot = tl.load(slots + row * size + column, mask=inside, other=e)
    value = tl.load(values + graph * e + slot, mask=slot < e, other=0.0)
    tl.store(out + graph * size + column, value, mask=inside)


@triton.jit
def _gather(grad, pairs, out, batch, graphs_per_fold, e, size, BLOCK: tl.constexpr):
    graph = tl.program_id(0).to(tl.int64)
    row = graph // graphs_per_fold * batch + graph % batch
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    listed = place < e
    there = tl.load(pairs + row * 2 * e + place, mask=listed, other=0)
    back = tl.load(pairs + row * 2 * e + e + place, mask=listed, other=0)
    # Flat index 0 marks a place that is left empty.
    total = tl.load(grad + graph * size + there, mask=there > 0, other=0.0)
    total += tl.load(grad + graph * size + back, mask=back > 0, other=0.0)
    tl.store(out + graph * e + place, total, mask=listed)


def _launch(kernel: Any, source: Tensor, lists: Tensor, size: int, e: int, width: int) -> Tensor:
    """Run for all graphs of ``source`` (*F, *K, B, .), whose lists are (*F, B, .)."""
    source, lists = source.contiguous(), lists.contiguous()
    graphs, batch = source.numel() // source.shape[-1], lists.shape[-2]
    folds = lists.numel() // (batch * lists.shape[-1])
    out = source.new_empty(*source.shape[:-1], width)
    kernel[(graphs, triton.cdiv(width, BLOCK))](
        source, lists, out, batch, graphs // folds, e, size, BLOCK=BLOCK
    )
    return out


class Spread(torch.autograd.Function):
    """Values (*K, B, E) of undirected edges as flat symmetric matrices (*K, B, P * P)."""

    @staticmethod
    def forward(values, pairs, slots):
        size, e = slots.shape[-1], values.shape[-1]
        return _launch(_spread, values, slots, size, e, size)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx, grad):
        return _Gather.apply(grad, *ctx.saved_tensors), None, None

    @staticmethod
    def vmap(info, in_dims, values, pairs, slots):
        return Spread.apply(*to_front(info, in_dims, (values, pairs, slots))), 0


class _Gather(Derivative):
    @staticmethod
    def forward(grad, pairs):
        size, e = grad.shape[-1], pairs.shape[-1] // 2
        return _launch(_gather, grad, pairs, size, e, e)

    @staticmethod
    def vmap(info, in_dims, grad, pairs):
        return _Gather.apply(*to_front(info, in_dims, (grad, pairs))), 0
