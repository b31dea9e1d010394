"""Features of many graphs times one mask for all of them, in one pass each way."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused

BLOCK = 512


@triton.jit
def _selected(mask, values, out, batch, count, BLOCK: tl.constexpr):
    fold, place = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    factor = tl.load(mask + fold * count + place, mask=inside, other=0.0)
    for graph in range(batch):
        offset = (fold * batch + graph) * count + place
        value = tl.load(values + offset, mask=inside, other=0.0)
        tl.store(out + offset, factor * value, mask=inside)


@triton.jit
def _selected_back(grad, values, out, batch, count, BLOCK: tl.constexpr):
    fold, place = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    total = tl.zeros((BLOCK,), tl.float32)
    for graph in range(batch):
        offset = (fold * batch + graph) * count + place
        value = tl.load(values + offset, mask=inside, other=0.0)
        total += value * tl.load(grad + offset, mask=inside, other=0.0)
    tl.store(out + fold * count + place, total, mask=inside)


class Selected(Fused):
    """A mask (*F, P, D) and features (*F, B, P, D), which have no gradient."""

    @staticmethod
    def _launch(kernel, first, values, out):
        batch, *sizes = values.shape[-3:]
        count = sizes[0] * sizes[1]
        grid = (triton.cdiv(count, BLOCK), values.numel() // (batch * count))
        kernel[grid](first, values, out, batch, count, BLOCK=BLOCK)
        return out

    @classmethod
    def run(cls, mask, values):
        return cls._launch(_selected, mask, values, torch.empty_like(values))

    @staticmethod
    def keep(inputs, output):
        return (inputs[1],)

    @staticmethod
    def slopes(grad, values):
        shape = (*values.shape[:-3], *values.shape[-2:])
        return Selected._launch(_selected_back, grad, values, values.new_empty(shape))
