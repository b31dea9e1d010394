"""``LayerNorm(hidden + GELU(own + received))`` in one pass forward and one backward.

Rows are short (the hidden width), so a kernel that normalises one row per block leaves most of
the memory bandwidth unused, and unfused arithmetic reads and writes everything several times.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front

ROWS = 64
ROUNDS = 8


@triton.jit
def _forward(
    hidden, own, received, weight, bias, out, rows, eps, D: tl.constexpr, ROWS: tl.constexpr
):
    fold, column = tl.program_id(0), tl.arange(0, D)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    offset = (fold.to(tl.int64) * rows + row[:, None]) * D + column[None, :]
    pre = tl.load(own + offset, mask=inside, other=0.0)
    pre += tl.load(received + offset, mask=inside, other=0.0)
    value = tl.load(hidden + offset, mask=inside, other=0.0)
    value += 0.5 * pre * (1 + tl.erf(pre * 0.7071067811865476))
    centred = value - (tl.sum(value, 1) / D)[:, None]
    inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
    result = centred * inverse[:, None] * tl.load(weight + fold * D + column)[None, :]
    result += tl.load(bias + fold * D + column)[None, :]
    tl.store(out + offset, result, mask=inside)


@triton.jit
def _backward(
    hidden, own, received, weight, grad, grad_hidden, grad_pre, grad_weight, grad_bias, rows, eps,
    D: tl.constexpr, ROWS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    fold, part, column = tl.program_id(0), tl.program_id(1), tl.arange(0, D)
    scale = tl.load(weight + fold * D + column)[None, :]
    weight_sum = tl.zeros((D,), tl.float32)
    bias_sum = tl.zeros((D,), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        inside = (row < rows)[:, None]
        offset = (fold.to(tl.int64) * rows + row[:, None]) * D + column[None, :]
        pre = tl.load(own + offset, mask=inside, other=0.0)
        pre += tl.load(received + offset, mask=inside, other=0.0)
        normal = 0.5 * (1 + tl.erf(pre * 0.7071067811865476))
        value = tl.load(hidden + offset, mask=inside, other=0.0) + pre * normal
        centred = value - (tl.sum(value, 1) / D)[:, None]
        inverse = 1 / tl.sqrt(tl.sum(centred * centred, 1) / D + eps)
        unit = centred * inverse[:, None]
        above = tl.load(grad + offset, mask=inside, other=0.0)
        weight_sum += tl.sum(above * unit, 0)
        bias_sum += tl.sum(above, 0)
        above = above * scale
        mean = (tl.sum(above, 1) / D)[:, None]
        slope = (tl.sum(above * unit, 1) / D)[:, None]
        through = (above - mean - unit * slope) * inverse[:, None]
        tl.store(grad_hidden + offset, through, mask=inside)
        density = tl.exp(-0.5 * pre * pre) * 0.3989422804014327
        tl.store(grad_pre + offset, through * (normal + pre * density), mask=inside)
    target = (fold * tl.num_programs(1) + part) * D + column
    tl.store(grad_weight + target, weight_sum)
    tl.store(grad_bias + target, bias_sum)


class ResidualNorm(torch.autograd.Function):
    """``hidden``, ``own``, ``received`` (*folds, ..., D); ``weight``, ``bias`` (*folds, D)."""

    @staticmethod
    def forward(hidden, own, received, weight, bias, eps):
        hidden, own, received = hidden.contiguous(), own.contiguous(), received.contiguous()
        weight, bias = weight.contiguous(), bias.contiguous()
        width = weight.shape[-1]
        folds = weight.numel() // width
        rows = hidden.numel() // (folds * width)
        out = torch.empty_like(hidden)
        grid = (folds, triton.cdiv(rows, ROWS))
        _forward[grid](
            hidden, own, received, weight, bias, out, rows, eps, D=width, ROWS=ROWS
        )  # fmt: skip
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        hidden, own, received, weight, _, ctx.eps = inputs
        ctx.save_for_backward(hidden, own, received, weight)

    @staticmethod
    def backward(ctx, grad):
        grad_hidden, grad_pre, grad_weight, grad_bias = _ResidualNormBackward.apply(
            *ctx.saved_tensors, grad, ctx.eps
        )
        return grad_hidden, grad_pre, grad_pre, grad_weight, grad_bias, None

    @staticmethod
    def vmap(info, in_dims, hidden, own, received, weight, bias, eps):
        tensors = to_front(info, in_dims, (hidden, own, received, weight, bias))
        return ResidualNorm.apply(*tensors, eps), 0


class _ResidualNormBackward(Derivative):
    @staticmethod
    def forward(hidden, own, received, weight, grad, eps):
        hidden, own, received = hidden.contiguous(), own.contiguous(), received.contiguous()
        weight, grad = weight.contiguous(), grad.contiguous()
        width = weight.shape[-1]
        folds = weight.numel() // width
        rows = hidden.numel() // (folds * width)
        parts = triton.cdiv(rows, ROWS * ROUNDS)
        grad_hidden, grad_pre = torch.empty_like(hidden), torch.empty_like(hidden)
        grad_weight = hidden.new_empty(folds, parts, width)
        grad_bias = hidden.new_empty(folds, parts, width)
        _backward[(folds, parts)](
            hidden, own, received, weight, grad, grad_hidden, grad_pre, grad_weight, grad_bias,
            rows, eps, D=width, ROWS=ROWS, ROUNDS=ROUNDS,
        )  # fmt: skip
        # Summing the parts in a fixed order keeps the result the same in every run.
        sums = (part.sum(1).view_as(weight) for part in (grad_weight, grad_bias))
        return grad_hidden, grad_pre, *sums

    @staticmethod
    def vmap(info, in_dims, hidden, own, received, weight, grad, eps):
        tensors = to_front(info, in_dims, (hidden, own, received, weight, grad))
        return _ResidualNormBackward.apply(*tensors, eps), (0, 0, 0, 0)


def residual_norm(
    hidden: Tensor, own: Tensor, received: Tensor, norm: torch.nn.LayerNorm
) -> Tensor:
    """The fused layer end, with the weights of an ordinary ``LayerNorm``."""
    return ResidualNorm.apply(hidden, own, received, norm.weight, norm.bias, norm.eps)
