"""``GELU(base + descriptor @ local.T)`` of all nodes, where all graphs have one base.

Plain torch writes each of the three steps, and its products with three columns are slow.
"""

import math

import triton
import triton.language as tl

from brio_core.kernels.functions import Fused

ROWS = 32
# Graphs are summed by so many programs.
PARTS = 8


@triton.jit
def _before(base, local, descriptor, fold, node, row, inside, D: tl.constexpr):
    """What GELU sees, and the three numbers of every node."""
    d = tl.arange(0, D)
    local += fold * D * 3 + d * 3
    first = tl.load(descriptor + node * 3, mask=inside, other=0.0)[:, None]
    second = tl.load(descriptor + node * 3 + 1, mask=inside, other=0.0)[:, None]
    third = tl.load(descriptor + node * 3 + 2, mask=inside, other=0.0)[:, None]
    value = tl.load(base + row[:, None] * D + d[None, :], mask=inside[:, None], other=0.0)
    value += first * tl.load(local)[None, :] + second * tl.load(local + 1)[None, :]
    return value + third * tl.load(local + 2)[None, :], first, second, third


@triton.jit
def _forward(base, local, descriptor, out, nodes, p, D: tl.constexpr, ROWS: tl.constexpr):
    fold = tl.program_id(0)
    number = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    node = fold.to(tl.int64) * nodes + number
    inside = number < nodes
    value, _, _, _ = _before(
        base + fold * p * D, local, descriptor, fold, node, number % p, inside, D
    )
    value = 0.5 * value * (1 + tl.erf(value * 0.7071067811865476))
    target = out + node[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(target, value, mask=inside[:, None])


@triton.jit
def _backward(
    grad, base, local, descriptor, to_base, to_local, graphs, p, PARTS: tl.constexpr,
    D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradients of some rows of the base and of ``local``, summed over some graphs."""
    fold, block, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    d, row = tl.arange(0, D), block * ROWS + tl.arange(0, ROWS)
    inside = row < p
    total = tl.zeros((ROWS, D), tl.float32)
    one = tl.zeros((D,), tl.float32)
    two = tl.zeros((D,), tl.float32)
    three = tl.zeros((D,), tl.float32)
    for graph in range(part, graphs, PARTS):
        node = (fold * graphs + graph).to(tl.int64) * p + row
        value, first, second, third = _before(
            base + fold * p * D, local, descriptor, fold, node, row, inside, D
        )
        place = node[:, None] * D + d[None, :]
        slope = 0.5 * (1 + tl.erf(value * 0.7071067811865476))
        slope += value * tl.exp(-0.5 * value * value) * 0.3989422804014327
        slope *= tl.load(grad + place, mask=inside[:, None], other=0.0)
        total += slope
        one += tl.sum(slope * first, 0)
        two += tl.sum(slope * second, 0)
        three += tl.sum(slope * third, 0)
    target = to_base + ((fold * PARTS + part) * p + row[:, None]) * D + d[None, :]
    tl.store(target, total, mask=inside[:, None])
    target = to_local + (((fold * PARTS + part) * tl.num_programs(1) + block) * D + d) * 3
    tl.store(target, one)
    tl.store(target + 1, two)
    tl.store(target + 2, three)


class NodeInput(Fused):
    """``base`` (*F, P, D), ``local`` (*F, D, 3), ``descriptor`` (*F, N, P, 3): (*F, N, P, D)."""

    @staticmethod
    def run(base, local, descriptor):
        *lead, count, p, _ = descriptor.shape
        width = base.shape[-1]
        out = base.new_empty(*lead, count, p, width)
        grid = (math.prod(lead), triton.cdiv(count * p, ROWS))
        _forward[grid](base, local, descriptor, out, count * p, p, D=width, ROWS=ROWS)
        return out

    @staticmethod
    def slopes(grad, base, local, descriptor):
        *lead, count, p, _ = descriptor.shape
        width, folds, blocks = base.shape[-1], math.prod(lead), triton.cdiv(p, ROWS)
        to_base = base.new_empty(folds, PARTS, p, width)
        to_local = base.new_empty(folds, PARTS, blocks, width, 3)
        _backward[(folds, blocks, PARTS)](
            grad, base, local, descriptor, to_base, to_local, count, p,
            PARTS=PARTS, D=width, ROWS=ROWS,
        )  # fmt: skip
        return to_base.sum(1).view_as(base), to_local.sum((1, 2)).view_as(local)
