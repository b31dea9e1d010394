"""``dropout(relu(values + bias))`` in one pass; its own output tells where a gradient passes."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.mapping import to_front
from brio_core.kernels.uniform import draw

BLOCK = 1024


@triton.jit
def _forward(values, bias, keys, out, count, width, rate, BLOCK: tl.constexpr):
    fold = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    offset = fold.to(tl.int64) * count + place
    value = tl.load(values + offset, mask=inside, other=0.0)
    value += tl.load(bias + fold * width + place % width, mask=inside, other=0.0)
    kept = draw(place, tl.load(keys + fold).to(tl.uint32)) >= rate
    result = tl.where(kept & (value > 0), value / (1.0 - rate), 0.0)
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _backward(out, grad, to_values, count, rate, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    passes = tl.load(out + place, mask=inside, other=0.0) > 0
    above = tl.load(grad + place, mask=inside, other=0.0)
    tl.store(to_values + place, tl.where(passes, above / (1.0 - rate), 0.0), mask=inside)


class ReluDropout(torch.autograd.Function):
    """Values (*folds, ..., D), bias (*folds, D), keys (*folds) with their stream folded in."""

    @staticmethod
    def forward(values, bias, keys, rate):
        values, bias, keys = values.contiguous(), bias.contiguous(), keys.contiguous()
        out = torch.empty_like(values)
        folds = keys.numel()
        count = values.numel() // folds
        _forward[(triton.cdiv(count, BLOCK), folds)](
            values, bias, keys, out, count, bias.shape[-1], rate, BLOCK=BLOCK
        )
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        values, bias, _, ctx.rate = inputs
        # All but those of folds and channels.
        ctx.axes = tuple(range(bias.ndim - 1, values.ndim - 1))
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, grad):
        slopes = _ReluDropoutBackward.apply(*ctx.saved_tensors, grad, ctx.rate)
        return slopes, slopes.sum(ctx.axes), None, None

    @staticmethod
    def vmap(info, in_dims, values, bias, keys, rate):
        return ReluDropout.apply(*to_front(info, in_dims, (values, bias, keys)), rate), 0


class _ReluDropoutBackward(torch.autograd.Function):
    @staticmethod
    def forward(out, grad, rate):
        out, grad = out.contiguous(), grad.contiguous()
        slopes = torch.empty_like(out)
        _backward[(triton.cdiv(out.numel(), BLOCK),)](
            out, grad, slopes, out.numel(), rate, BLOCK=BLOCK
        )
        return slopes

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("second derivatives of the fused ReLU are not available")

    @staticmethod
    def vmap(info, in_dims, out, grad, rate):
        return _ReluDropoutBackward.apply(*to_front(info, in_dims, (out, grad)), rate), 0
