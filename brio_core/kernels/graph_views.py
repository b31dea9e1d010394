"""What nodes hear over two graphs, mixed and each alone, with GELU: one pass each way.

View 0 is ``own + bias + a_1 first + a_2 second``, view 1 has the first graph only, view 2 the
second only. Torch multiplies by many zeros and ones for the same, and sums over them on the way
back.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, row_tile

# Numbers of a tile, and rows of a program that sums.
TILE, ROWS_PER_PROGRAM = 1024, 128


@triton.jit
def _before(
    own, first, second, row, column, inside, start, one, two, d: tl.constexpr,
    VIEW: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A view before GELU, what it hears over both graphs, and where that lies."""
    if WIDE:
        row = row * 3 + VIEW
    place = row * d + column
    value = tl.load(own + place, mask=inside, other=0.0) + start
    left, right = tl.zeros_like(value), tl.zeros_like(value)
    if VIEW != 2:
        left = tl.load(first + place, mask=inside, other=0.0)
        value += left * one
    if VIEW != 1:
        right = tl.load(second + place, mask=inside, other=0.0)
        value += right * two
    return value, left, right, place


@triton.jit
def _forward(
    own, first, second, shares, bias, out, rows, d: tl.constexpr,
    VIEWS: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    fold, column = tl.program_id(1).to(tl.int64), tl.arange(0, COLUMNS)[None, :]
    number = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    inside, row = (number < rows) & (column < d), fold * rows + number
    start = tl.load(bias + fold * d + column, mask=column < d, other=0.0)
    one, two = tl.load(shares + fold * 2), tl.load(shares + fold * 2 + 1)
    for view in tl.static_range(VIEWS):
        value, _, _, _ = _before(
            own, first, second, row, column, inside, start, one if view == 0 else 1.0,
            two if view == 0 else 1.0, d, view, WIDE,
        )  # fmt: skip
        value = 0.5 * value * (1 + tl.erf(value * 0.7071067811865476))
        tl.store(out + (row * VIEWS + view) * d + column, value, mask=inside)


@triton.jit
def _backward(
    grad, own, first, second, shares, bias, to_own, to_first, to_second, to_shares, to_bias,
    rows, d: tl.constexpr, VIEWS: tl.constexpr, WIDE: tl.constexpr, TURNS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    part, parts = tl.program_id(0), tl.num_programs(0)
    fold, column = tl.program_id(1).to(tl.int64), tl.arange(0, COLUMNS)[None, :]
    start = tl.load(bias + fold * d + column, mask=column < d, other=0.0)
    one, two = tl.load(shares + fold * 2), tl.load(shares + fold * 2 + 1)
    bias_sum = tl.zeros((ROWS, COLUMNS), tl.float32)
    one_sum, two_sum = tl.zeros_like(bias_sum), tl.zeros_like(bias_sum)
    for turn in range(TURNS):
        number = ((part * TURNS + turn) * ROWS + tl.arange(0, ROWS))[:, None]
        inside, row = (number < rows) & (column < d), fold * rows + number
        own_sum = tl.zeros_like(bias_sum)
        first_sum, second_sum = tl.zeros_like(bias_sum), tl.zeros_like(bias_sum)
        for view in tl.static_range(VIEWS):
            value, left, right, place = _before(
                own, first, second, row, column, inside, start, one if view == 0 else 1.0,
                two if view == 0 else 1.0, d, view, WIDE,
            )  # fmt: skip
            slope = 0.5 * (1 + tl.erf(value * 0.7071067811865476))
            slope += value * tl.exp(-0.5 * value * value) * 0.3989422804014327
            above = (row * VIEWS + view) * d + column
            slope *= tl.load(grad + above, mask=inside, other=0.0)
            bias_sum += slope
            if view == 0:
                one_sum += slope * left
                two_sum += slope * right
            if WIDE:
                to_left = slope * (one if view == 0 else 2.0 - view)
                to_right = slope * (two if view == 0 else view - 1.0)
                tl.store(to_own + place, slope, mask=inside)
                tl.store(to_first + place, to_left, mask=inside)
                tl.store(to_second + place, to_right, mask=inside)
            else:
                own_sum += slope
                first_sum += slope * (one if view == 0 else 2.0 - view)
                second_sum += slope * (two if view == 0 else view - 1.0)
        if not WIDE:
            place = row * d + column
            tl.store(to_own + place, own_sum, mask=inside)
            tl.store(to_first + place, first_sum, mask=inside)
            tl.store(to_second + place, second_sum, mask=inside)
    target = fold * parts + part
    tl.store(to_shares + target * 2, tl.sum(tl.sum(one_sum, 1), 0))
    tl.store(to_shares + target * 2 + 1, tl.sum(tl.sum(two_sum, 1), 0))
    lane = tl.arange(0, COLUMNS)
    tl.store(to_bias + target * d + lane, tl.sum(bias_sum, 0), mask=lane < d)


def _sizes(own: Tensor, bias: Tensor, views: int) -> tuple[int, int, dict[str, Any]]:
    """Folds, rows of each, and options of both kernels."""
    (before, d), folds = own.shape[-2:], bias.numel() // bias.shape[-1]
    options = {"VIEWS": views, "WIDE": before == 3} | row_tile(d, TILE)
    return folds, own.numel() // (folds * before * d), options


class GraphViews(Fused):
    """Own, first and second (*F, ..., V, d), shares (*F, 2), bias (*F, d) to (*F, ..., views, d).

    ``views`` is 1 or 3; V is the same, or 1 where all views have one input.
    """

    @staticmethod
    def run(own, first, second, shares, bias, views):
        folds, rows, options = _sizes(own, bias, views)
        d = own.shape[-1]
        out = own.new_empty(*own.shape[:-2], views, d)
        grid = (triton.cdiv(rows, options["ROWS"]), folds)
        _forward[grid](own, first, second, shares, bias, out, rows, d, **options)
        return out

    @staticmethod
    def slopes(grad, own, first, second, shares, bias, views):
        folds, rows, options = _sizes(own, bias, views)
        d, turns = own.shape[-1], triton.cdiv(ROWS_PER_PROGRAM, options["ROWS"])
        parts = triton.cdiv(rows, turns * options["ROWS"])
        slopes = tuple(torch.empty_like(own) for _ in range(3))
        to_shares, to_bias = own.new_empty(folds, parts, 2), own.new_empty(folds, parts, d)
        _backward[(parts, folds)](
            grad, own, first, second, shares, bias, *slopes, to_shares, to_bias, rows, d,
            TURNS=turns, **options,
        )  # fmt: skip
        return *slopes, to_shares.sum(1).view_as(shares), to_bias.sum(1).view_as(bias)
