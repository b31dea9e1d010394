"""Additive scores of all pairs of nodes: no tensor of the size (pairs x hidden units) is written.

Inputs are (graphs, D, P), transposed so that neighbouring nodes are neighbours in memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
TILE = 4096


@triton.jit
def _scores(
    sender, receiver, weight, out, graphs_per_weight, p, d,
    BLOCK: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(2) * BLOCK + tl.arange(0, BLOCK)
    sender += graph * d * p
    receiver += graph * d * p
    weight += (graph // graphs_per_weight) * d
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for k in range(d):
        left = tl.load(sender + k * p + i, mask=i < p, other=0.0)
        right = tl.load(receiver + k * p + j, mask=j < p, other=0.0)
        total += tl.load(weight + k) * tl.maximum(left[:, None] + right[None, :], 0.0)
    place = graph * p * p + i[:, None] * p + j[None, :]
    tl.store(out + place, total, mask=(i < p)[:, None] & (j < p)[None, :])


@triton.jit
def _open_sums(
    own, other, grad, out, p, d, row_stride, column_stride,
    ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    j = tl.arange(0, WIDTH)
    place = graph * p * p + i[:, None] * row_stride + j[None, :] * column_stride
    above = tl.load(grad + place, mask=(i < p)[:, None] & (j < p)[None, :], other=0.0)
    own += graph * d * p
    other += graph * d * p
    out += graph * d * p
    for k in range(d):
        left = tl.load(own + k * p + i, mask=i < p, other=0.0)
        right = tl.load(other + k * p + j, mask=j < p, other=0.0)
        is_open = left[:, None] + right[None, :] > 0
        tl.store(out + k * p + i, tl.sum(tl.where(is_open, above, 0.0), 1), mask=i < p)


def scores(sender: Tensor, receiver: Tensor, weight: Tensor) -> Tensor:
    """``sum_k w_k relu(s_ki + r_kj)``; (G, D, P), (G, D, P) and (W, D) give (G, P, P).

    G is a multiple of W: that many graphs in a row share a weight.
    """
    graphs, d, p = sender.shape
    out = sender.new_empty(graphs, p, p)
    blocks = triton.cdiv(p, BLOCK)
    _scores[(graphs, blocks, blocks)](
        sender, receiver, weight, out, graphs // len(weight), p, d, BLOCK=BLOCK
    )
    return out


def open_sums(own: Tensor, other: Tensor, grad: Tensor, transposed: bool) -> Tensor:
    """``sum_j g_ij [own_ki + other_kj > 0]``, (G, D, P); with ``transposed`` it reads ``g_ji``."""
    graphs, d, p = own.shape
    out = torch.empty_like(own)
    width = triton.next_power_of_2(p)
    rows = max(1, TILE // width)
    strides = (1, p) if transposed else (p, 1)
    _open_sums[(graphs, triton.cdiv(p, rows))](
        own, other, grad, out, p, d, *strides, ROWS=rows, WIDTH=width
    )
    return out
