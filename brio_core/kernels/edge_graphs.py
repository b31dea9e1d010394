"""Listed edges as dense matrices, and back: each number is read and written once.

The matrices hold values of the edges, or random subgraphs.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused
from brio_core.kernels.uniform import draw

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
    graphs, batch = source.numel() // source.shape[-1], lists.shape[-2]
    folds = lists.numel() // (batch * lists.shape[-1])
    out = source.new_empty(*source.shape[:-1], width)
    kernel[(graphs, triton.cdiv(width, BLOCK))](
        source, lists, out, batch, graphs // folds, e, size, BLOCK=BLOCK
    )
    return out


class Spread(Fused):
    """Values (*K, B, E) of undirected edges as flat symmetric matrices (*K, B, P * P)."""

    @staticmethod
    def run(values, pairs, slots):
        size, e = slots.shape[-1], values.shape[-1]
        return _launch(_spread, values, slots, size, e, size)

    @staticmethod
    def keep(inputs, output):
        return inputs[1:2]

    @staticmethod
    def slopes(grad, pairs):
        size, e = grad.shape[-1], pairs.shape[-1] // 2
        return _launch(_gather, grad, pairs, size, e, e)


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
def _gather_both(first, second, pairs, out, e, size, BLOCK: tl.constexpr):
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


class DrawnGraphs(Fused):
    """Draw ``number`` of edges with chances (*folds, B, E), as (*folds, B, P * P), given twice.

    Two layers read one graph, each by a name of its own: their gradients then meet at the edges,
    and need not be added as matrices. The diagonal is 1. An edge passes its gradient on to its
    chance. Keys (*folds) have their stream folded in.
    """

    results = 2

    @staticmethod
    def run(rate, pairs, slots, keys, number):
        (*lead, batch, e), size = rate.shape, slots.shape[-1]
        out = rate.new_empty(*lead, batch, size)
        _drawn[(keys.numel() * batch, triton.cdiv(size, BLOCK))](
            rate, slots, keys, out, number, batch, e, round(size**0.5), size, BLOCK=BLOCK
        )
        return out, out.detach()

    @staticmethod
    def keep(inputs, output):
        return inputs[1:2]

    @staticmethod
    def slopes(first, second, pairs):
        size, e = first.shape[-1], pairs.shape[-1] // 2
        out = first.new_empty(*first.shape[:-1], e)
        _gather_both[(first.numel() // size, triton.cdiv(e, BLOCK))](
            first, second, pairs, out, e, size, BLOCK=BLOCK
        )
        return out
