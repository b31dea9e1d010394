"""``relu(c_i h_i + m_i + b)``: a node's own features, its neighbours' messages, and a bias."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.norm_relu import ROUNDS, ROWS, WIDTH, columns


@triton.jit
def _forward(
    hidden, heard, centre, bias, out, rows, d: tl.constexpr,
    ROWS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, column = tl.program_id(0).to(tl.int64), columns(D)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    here = (row < rows)[:, None] & (column < d)[None, :]
    offset = (group * rows + row[:, None]) * d + column[None, :]
    factor = tl.load(centre + group * rows + row, mask=row < rows, other=0.0)[:, None]
    value = tl.load(hidden + offset, mask=here, other=0.0) * factor
    value += tl.load(heard + offset, mask=here, other=0.0)
    value += tl.load(bias + group * d + column, mask=column < d, other=0.0)[None, :]
    tl.store(out + offset, tl.maximum(value, 0.0), mask=here)


@triton.jit
def _backward(
    hidden, centre, out, grad, to_hidden, to_heard, to_centre, to_bias, rows, d: tl.constexpr,
    ROWS: tl.constexpr, ROUNDS: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    group, part, column = tl.program_id(0).to(tl.int64), tl.program_id(1), columns(D)
    # Every tile of channels has a share of its own in the gradient of a node's factor.
    to_centre += tl.program_id(2).to(tl.int64) * tl.num_programs(0) * rows
    total = tl.zeros((ROWS, D), tl.float32)
    for turn in range(ROUNDS):
        row = (part * ROUNDS + turn) * ROWS + tl.arange(0, ROWS)
        here = (row < rows)[:, None] & (column < d)[None, :]
        offset = (group * rows + row[:, None]) * d + column[None, :]
        above = tl.load(grad + offset, mask=here, other=0.0)
        above = tl.where(tl.load(out + offset, mask=here, other=0.0) > 0, above, 0.0)
        tl.store(to_heard + offset, above, mask=here)
        factor = tl.load(centre + group * rows + row, mask=row < rows, other=0.0)[:, None]
        tl.store(to_hidden + offset, above * factor, mask=here)
        own = tl.load(hidden + offset, mask=here, other=0.0)
        tl.store(to_centre + group * rows + row, tl.sum(above * own, 1), mask=row < rows)
        total += above
    target = (group * tl.num_programs(1) + part) * d + column
    tl.store(to_bias + target, tl.sum(total, 0), mask=column < d)


class CentreRelu(torch.autograd.Function):
    """Nodes and messages (*G, ..., D), what a node's own counts (*G, ..., 1), bias (*G, D)."""

    @staticmethod
    def forward(hidden, heard, centre, bias):
        hidden, heard, centre, bias = (x.contiguous() for x in (hidden, heard, centre, bias))
        d = bias.shape[-1]
        groups = bias.numel() // d
        rows = hidden.numel() // (groups * d)
        out = torch.empty_like(hidden)
        width = min(WIDTH, triton.next_power_of_2(d))
        _forward[(groups, triton.cdiv(rows, ROWS), triton.cdiv(d, width))](
            hidden, heard, centre, bias, out, rows, d, ROWS=ROWS, D=width
        )
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        hidden, _, centre, bias = inputs
        ctx.save_for_backward(hidden, centre, bias, output)

    @staticmethod
    def backward(ctx, grad):
        return _CentreReluBackward.apply(*ctx.saved_tensors, grad)

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return CentreRelu.apply(*to_front(info, in_dims, tensors)), 0


class _CentreReluBackward(Derivative):
    @staticmethod
    def forward(hidden, centre, bias, out, grad):
        hidden, centre, out, grad = (x.contiguous() for x in (hidden, centre, out, grad))
        d = bias.shape[-1]
        groups = bias.numel() // d
        rows = hidden.numel() // (groups * d)
        width = min(WIDTH, triton.next_power_of_2(d))
        parts, tiles = triton.cdiv(rows, ROWS * ROUNDS), triton.cdiv(d, width)
        to_hidden, to_heard = torch.empty_like(hidden), torch.empty_like(hidden)
        to_centre = centre.new_empty(tiles, *centre.shape)
        to_bias = hidden.new_empty(groups, parts, d)
        _backward[(groups, parts, tiles)](
            hidden, centre, out, grad, to_hidden, to_heard, to_centre, to_bias, rows, d,
            ROWS=ROWS, ROUNDS=ROUNDS, D=width,
        )  # fmt: skip
        return to_hidden, to_heard, to_centre.sum(0), to_bias.sum(1).view_as(bias)

    @staticmethod
    def vmap(info, in_dims, *tensors):
        return _CentreReluBackward.apply(*to_front(info, in_dims, tensors)), (0, 0, 0, 0)
