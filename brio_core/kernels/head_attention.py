"""Multi-head attention with dropout, whose heads stay where one product of all nodes has put them.

Products of every head read and write their columns of the wide tensors in place, so no head is
ever copied out. Softmax over short rows and dropout behind it take one pass forward and one
backward. Dropout draws the numbers of :func:`randomness.uniform`; the gradient is computed from
the scores alone, so that no mask is kept.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.dropout_layers import factors
from brio_core.kernels.functions import Fused, row_tile

# Numbers that one program holds. A row's length is known when kernels are compiled: only rows whose
# beginning is known to be aligned are read four numbers at a time.
TILE, WARPS = 1024, 2


@triton.jit
def _weights(
    scores, keys, rows, width: tl.constexpr, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Softmax of some rows, what dropout multiplies it with, and where they are."""
    fold = tl.program_id(1)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < width)[None, :]
    place = row[:, None] * width + column[None, :]
    offset = fold.to(tl.int64) * rows * width + place
    value = tl.load(scores + offset, mask=inside, other=-1.0e30)
    power = tl.exp(value - tl.max(value, 1)[:, None])
    weight = power / tl.sum(power, 1)[:, None]
    kept = factors(place, keys, fold, rate, DROP)
    return weight, kept, offset, inside


@triton.jit
def _forward(
    scores, keys, out, rows, width: tl.constexpr, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    weight, kept, offset, inside = _weights(scores, keys, rows, width, rate, DROP, ROWS, COLUMNS)
    tl.store(out + offset, weight * kept, mask=inside)


@triton.jit
def _backward(
    scores, keys, grad, out, rows, width: tl.constexpr, rate,
    DROP: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    weight, kept, offset, inside = _weights(scores, keys, rows, width, rate, DROP, ROWS, COLUMNS)
    through = tl.load(grad + offset, mask=inside, other=0.0) * kept
    inner = tl.sum(weight * through, 1)
    tl.store(out + offset, weight * (through - inner[:, None]), mask=inside)


def _launch(kernel: Any, scores: Tensor, keys: Tensor, rate: float, *tensors: Tensor) -> None:
    """Run for all rows of contiguous scores, whose first axes are those of the keys."""
    width, folds = scores.shape[-1], keys.numel()
    rows = scores.numel() // (folds * width)
    tile = row_tile(width, TILE)
    kernel[(triton.cdiv(rows, tile["ROWS"]), folds)](
        scores, keys, *tensors, rows, width, rate, DROP=rate > 0, num_warps=WARPS, **tile
    )


def _by_head(entered: Tensor, enter: Tensor) -> Tensor:
    """Queries, keys and values as (graphs, P, 3, heads, units)."""
    return entered.view(-1, entered.shape[-2], *enter.shape[-4:-1])


class HeadAttention(Fused):
    """Enter (*folds, 3, H, U, D) and nodes (*folds, B, P, D) to heads (*folds, B, P, H * U).

    Place ``spare`` of all queries and values is 1. Also gives what backward reads: what the nodes
    were turned into, scores, and weights after dropout.
    """

    @staticmethod
    def run(enter, nodes, keys, spare, rate):
        (*lead, n_rois, width), (_, heads, units) = nodes.shape, enter.shape[-4:-1]
        folds = keys.numel()
        entered = torch.bmm(nodes.view(folds, -1, width), enter.view(folds, -1, width).mT)
        entered = entered.view(*lead, n_rois, -1)
        parts = _by_head(entered, enter)
        parts[:, :, ::2, :, spare] = 1.0
        query, sent, value = parts.unbind(2)
        scores = nodes.new_empty(len(parts), heads, n_rois, n_rois)
        for head in range(heads):
            torch.bmm(query[:, :, head], sent[:, :, head].mT, out=scores[:, head])
        weights = torch.empty_like(scores)
        _launch(_forward, scores, keys, rate, weights)
        heard = nodes.new_empty(len(parts), n_rois, heads, units)
        for head in range(heads):
            torch.bmm(weights[:, head], value[:, :, head], out=heard[:, :, head])
        square = (*lead, heads, n_rois, n_rois)
        heard = heard.view(*lead, n_rois, heads * units)
        return heard, entered, scores.view(square), weights.view(square)

    @staticmethod
    def keep(inputs, output):
        enter, nodes, keys, _, rate = inputs
        return enter, nodes, keys, *output[1:], rate

    @classmethod
    def backward(cls, ctx, *grads):
        # The first layer reads data, which needs no gradient.
        ctx.options = (ctx.options[0], ctx.needs_input_grad[1])
        return super().backward(ctx, *grads)

    @staticmethod
    def slopes(grad, enter, nodes, keys, entered, scores, weights, rate, reaches_nodes):
        folds, width = keys.numel(), nodes.shape[-1]
        heads, units = enter.shape[-3:-1]
        query, sent, value = _by_head(entered, enter).unbind(2)
        to_entered = torch.empty_like(entered)
        to_query, to_sent, to_value = _by_head(to_entered, enter).unbind(2)
        weights = weights.flatten(0, -4)
        grad = grad.view(*query.shape)
        slopes = torch.empty_like(weights)
        for head in range(heads):
            above = grad[:, :, head]
            torch.bmm(weights[:, head].mT, above, out=to_value[:, :, head])
            torch.bmm(above, value[:, :, head].mT, out=slopes[:, head])
        # Every program reads what it overwrites before it does so.
        _launch(_backward, scores, keys, rate, slopes, slopes)
        for head in range(heads):
            torch.bmm(slopes[:, head], sent[:, :, head], out=to_query[:, :, head])
            torch.bmm(slopes[:, head].mT, query[:, :, head], out=to_sent[:, :, head])
        # The spare places are constants, and their weights zero: they pass nothing on.
        flat, nodes = to_entered.view(folds, -1, 3 * heads * units), nodes.view(folds, -1, width)
        to_enter = torch.bmm(flat.mT, nodes).view_as(enter)
        if not reaches_nodes:
            return to_enter
        to_nodes = torch.bmm(flat, enter.view(folds, -1, width))
        return to_enter, to_nodes.view(*entered.shape[:-1], width)
