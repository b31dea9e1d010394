"""All iterations of a balanced assignment in registers, forward and back.

Plain torch starts a dozen kernels for each of 60 iterations on matrices of a few hundred numbers.
"""

import math

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Fused, power_of_2


@triton.jit
def _logsumexp(values, axis: tl.constexpr):
    largest = tl.max(values, axis)
    return largest + tl.log(tl.sum(tl.exp(values - tl.expand_dims(largest, axis)), axis))


@triton.jit
def _load(pointer, j, p, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The logits of one problem, far below all others in the padding; and where they are."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (row < j)[:, None] & (column < p)[None, :]
    place = tl.program_id(0).to(tl.int64) * j * p + row[:, None] * p + column[None, :]
    return tl.load(pointer + place, mask=inside, other=-1.0e30), place, inside


@triton.jit
def _forward(
    logits, plan, columns, j, p, log_j, log_p, iterations,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    value, place, inside = _load(logits, j, p, ROWS, COLUMNS)
    number = tl.arange(0, COLUMNS)
    columns += tl.program_id(0).to(tl.int64) * (iterations + 1) * p
    row = tl.zeros((ROWS,), tl.float32)
    column = tl.zeros((COLUMNS,), tl.float32)
    tl.store(columns + number, column, mask=number < p)
    for turn in range(iterations):
        row = tl.where(tl.arange(0, ROWS) < j, _logsumexp(value - column[None, :], 1) + log_j, 0.0)
        column = tl.where(number < p, _logsumexp(value - row[:, None], 0) + log_p, 0.0)
        tl.store(columns + (turn + 1) * p + number, column, mask=number < p)
    tl.store(plan + place, tl.exp(value - row[:, None] - column[None, :]), mask=inside)


@triton.jit
def _backward(
    grad, logits, columns, to_logits, j, p, log_j, log_p, iterations,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    value, place, inside = _load(logits, j, p, ROWS, COLUMNS)
    number = tl.arange(0, COLUMNS)
    known = number < p
    columns += tl.program_id(0).to(tl.int64) * (iterations + 1) * p
    column = tl.load(columns + iterations * p + number, mask=known, other=0.0)
    before = tl.load(columns + (iterations - 1) * p + number, mask=known, other=0.0)
    row = tl.where(tl.arange(0, ROWS) < j, _logsumexp(value - before[None, :], 1) + log_j, 0.0)
    total = tl.load(grad + place, mask=inside, other=0.0)
    total *= tl.where(inside, tl.exp(value - row[:, None] - column[None, :]), 0.0)
    to_row, to_column = -tl.sum(total, 1), -tl.sum(total, 0)
    for turn in range(iterations):
        # The share of every factor in the sum over a column, then of every ROI in that over a row.
        share = tl.exp(value - row[:, None] - column[None, :] + log_p)
        share = tl.where(inside, share, 0.0) * to_column[None, :]
        total += share
        to_row -= tl.sum(share, 1)
        share = tl.exp(value - row[:, None] - before[None, :] + log_j)
        share = tl.where(inside, share, 0.0) * to_row[:, None]
        total += share
        to_column = -tl.sum(share, 0)
        to_row = tl.zeros((ROWS,), tl.float32)
        column = before
        earlier = tl.maximum(iterations - 2 - turn, 0)
        before = tl.load(columns + earlier * p + number, mask=known, other=0.0)
        row = tl.where(tl.arange(0, ROWS) < j, _logsumexp(value - before[None, :], 1) + log_j, 0.0)
    tl.store(to_logits + place, total, mask=inside)


class BalancedAssignment(Fused):
    """The plan (..., J, P) of logits (..., J, P), and the potentials of its columns on the way."""

    @staticmethod
    def run(logits, iterations):
        *lead, j, p = logits.shape
        plan, columns = torch.empty_like(logits), logits.new_empty(*lead, iterations + 1, p)
        _forward[(math.prod(lead),)](
            logits, plan, columns, *_sizes(j, p), iterations, **_tile(j, p)
        )
        return plan, columns

    @staticmethod
    def keep(inputs, output):
        return inputs[0], output[1], inputs[1]

    @staticmethod
    def slopes(grad, logits, columns, iterations):
        *lead, j, p = logits.shape
        to_logits = torch.empty_like(logits)
        _backward[(math.prod(lead),)](
            grad, logits, columns, to_logits, *_sizes(j, p), iterations, **_tile(j, p)
        )
        return to_logits


def _sizes(j: int, p: int) -> tuple[int, int, float, float]:
    return j, p, math.log(j), math.log(p)


def _tile(j: int, p: int) -> dict[str, int]:
    return {"ROWS": power_of_2(j), "COLUMNS": power_of_2(p), "num_warps": 4}
