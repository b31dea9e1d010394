"""``dropout(relu(values + bias))`` in one pass; its own output tells where a gradient passes."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.uniform import draw

# Numbers in a tile; in the backward pass, its widest row, and how often a program moves on.
BLOCK = 1024
COLUMNS = 256
ROUNDS = 32


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
def _backward(
    out, grad, to_values, to_bias, rows, width, rate,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    part, fold = tl.program_id(0), tl.program_id(2).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None] & (column < width)[None, :]
        offset = (fold * rows + row[:, None]) * width + column[None, :]
        passes = tl.load(out + offset, mask=inside, other=0.0) > 0
        above = tl.load(grad + offset, mask=inside, other=0.0)
        slope = tl.where(passes, above / (1.0 - rate), 0.0)
        tl.store(to_values + offset, slope, mask=inside)
        total += slope
    target = (fold * tl.num_programs(0) + part) * width + column
    tl.store(to_bias + target, tl.sum(total, 0), mask=column < width)


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
        _, bias, _, ctx.rate = inputs
        ctx.save_for_backward(output, bias)

    @staticmethod
    def backward(ctx, grad):
        return *_ReluDropoutBackward.apply(*ctx.saved_tensors, grad, ctx.rate), None, None

    @staticmethod
    def vmap(info, in_dims, values, bias, keys, rate):
        return ReluDropout.apply(*to_front(info, in_dims, (values, bias, keys)), rate), 0


class _ReluDropoutBackward(Derivative):
    @staticmethod
    def forward(out, bias, grad, rate):
        out, grad = out.contiguous(), grad.contiguous()
        width = bias.shape[-1]
        folds = bias.numel() // width
        rows = out.numel() // bias.numel()
        columns = min(COLUMNS, triton.next_power_of_2(width))
        tile = {"ROWS": BLOCK // columns, "COLUMNS": columns, "ROUNDS": ROUNDS}
        parts = triton.cdiv(rows, tile["ROWS"] * ROUNDS)
        slopes, sums = torch.empty_like(out), out.new_empty(folds, parts, width)
        _backward[(parts, triton.cdiv(width, columns), folds)](
            out, grad, slopes, sums, rows, width, rate, **tile
        )
        # Summing the parts in a fixed order keeps the result the same in every run.
        return slopes, sums.sum(1).view_as(bias)

    @staticmethod
    def vmap(info, in_dims, out, bias, grad, rate):
        tensors = to_front(info, in_dims, (out, bias, grad))
        return _ReluDropoutBackward.apply(*tensors, rate), (0, 0)
