"""Row sums of ``|A A^T|`` for narrow factors A; the product itself never meets memory."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.mapping import Derivative, to_front

ROWS = 16


@triton.jit
def _products(factors, first, row, column, nodes, width, WIDTH: tl.constexpr, ROWS: tl.constexpr,
              COLUMNS: tl.constexpr):  # fmt: skip
    """Some rows of ``A A^T``, zero in the padding."""
    product = tl.zeros((ROWS, COLUMNS), tl.float32)
    for unit in tl.static_range(WIDTH):
        left = tl.load(factors + (first + row) * width + unit, mask=row < nodes, other=0.0)
        right = tl.load(factors + (first + column) * width + unit, mask=column < nodes, other=0.0)
        product += left[:, None] * right[None, :]
    return product


@triton.jit
def _forward(
    factors, out, nodes, width, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    first, column = tl.program_id(0).to(tl.int64) * nodes, tl.arange(0, COLUMNS)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        product = _products(factors, first, row, column, nodes, width, WIDTH, ROWS, COLUMNS)
        tl.store(out + first + row, tl.sum(tl.abs(product), 1), mask=row < nodes)


@triton.jit
def _backward(
    factors, grad, out, nodes, width, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    first, column = tl.program_id(0).to(tl.int64) * nodes, tl.arange(0, COLUMNS)
    sent = tl.load(grad + first + column, mask=column < nodes, other=0.0)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        product = _products(factors, first, row, column, nodes, width, WIDTH, ROWS, COLUMNS)
        received = tl.load(grad + first + row, mask=row < nodes, other=0.0)
        slope = received[:, None] + sent[None, :]
        slope = tl.where(product > 0, slope, tl.where(product < 0, -slope, 0.0))
        for unit in tl.static_range(WIDTH):
            right = tl.load(
                factors + (first + column) * width + unit, mask=column < nodes, other=0.0
            )
            total = tl.sum(slope * right[None, :], 1)
            tl.store(out + (first + row) * width + unit, total, mask=row < nodes)


def _launch(kernel, factors, *tensors) -> None:
    nodes, width = factors.shape[-2:]
    columns = max(16, triton.next_power_of_2(nodes))
    kernel[(factors.numel() // (nodes * width),)](
        factors, *tensors, nodes, width, WIDTH=width, ROWS=ROWS, COLUMNS=columns,
        num_warps=min(16, max(4, columns // 32)),
    )  # fmt: skip


class AbsoluteSums(torch.autograd.Function):
    """Factors (..., P, k) to sums (..., P)."""

    @staticmethod
    def forward(factors):
        factors = factors.contiguous()
        out = factors.new_empty(factors.shape[:-1])
        _launch(_forward, factors, out)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, grad):
        return _AbsoluteSumsBackward.apply(*ctx.saved_tensors, grad)

    @staticmethod
    def vmap(info, in_dims, factors):
        return AbsoluteSums.apply(*to_front(info, in_dims, (factors,))), 0


class _AbsoluteSumsBackward(Derivative):
    @staticmethod
    def forward(factors, grad):
        factors, grad = factors.contiguous(), grad.contiguous()
        out = torch.empty_like(factors)
        _launch(_backward, factors, grad, out)
        return out

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return _AbsoluteSumsBackward.apply(*to_front(info, in_dims, inputs)), 0
