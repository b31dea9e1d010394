"""The balanced assignment and its gradient: all iterations of one fold in one program.

The gradient is that of the iterations as they ran, converged or not. The forward pass keeps the
potentials of every iteration (a few kilobytes); the backward pass walks through them in reverse.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.sinkhorn_triton import logsumexp2

LARGEST_TILE = 8192
LOG2_E = tl.constexpr(1.4426950408889634)


def fits(similarity: Tensor) -> bool:
    """Whether one similarity matrix fits into the registers of a program."""
    return math.prod(_tile(*similarity.shape[-2:])) <= LARGEST_TILE


def _tile(n_rows: int, n_columns: int) -> tuple[int, int]:
    return max(4, power_of_2(n_rows)), max(16, power_of_2(n_columns))


@triton.jit
def _load(similarity, n, m, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One matrix in units of log2, very small in the padding, and where it is."""
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = (row < n)[:, None] & (column < m)[None, :]
    place = tl.program_id(0).to(tl.int64) * n * m + row[:, None] * m + column[None, :]
    values = tl.load(similarity + place, mask=inside, other=0.0)
    return tl.where(inside, values * LOG2_E, -1.0e30), place, inside


@triton.jit
def _forward(
    similarity, plan, row_history, column_history, n, m, log2_n, log2_m, iterations,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    scaled, place, inside = _load(similarity, n, m, ROWS, COLUMNS)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    first = tl.program_id(0).to(tl.int64) * iterations
    row_potential = tl.zeros((ROWS,), tl.float32)
    column_potential = tl.zeros((COLUMNS,), tl.float32)
    for step in range(iterations):
        row_potential = logsumexp2(scaled - column_potential[None, :], 1) + log2_n
        # Potentials are zero in the padding, so that nothing large is subtracted from it.
        row_potential = tl.where(row < n, row_potential, 0.0)
        column_potential = logsumexp2(scaled - row_potential[:, None], 0) + log2_m
        column_potential = tl.where(column < m, column_potential, 0.0)
        tl.store(row_history + (first + step) * n + row, row_potential, mask=row < n)
        tl.store(column_history + (first + step) * m + column, column_potential, mask=column < m)
    result = tl.exp2(scaled - row_potential[:, None] - column_potential[None, :])
    tl.store(plan + place, result, mask=inside)


@triton.jit
def _backward(
    similarity, above, row_history, column_history, slope, n, m, log2_n, log2_m, iterations,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    scaled, place, inside = _load(similarity, n, m, ROWS, COLUMNS)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    first = tl.program_id(0).to(tl.int64) * iterations
    last = first + iterations - 1
    rows = tl.load(row_history + last * n + row, mask=row < n, other=0.0)
    columns = tl.load(column_history + last * m + column, mask=column < m, other=0.0)
    plan = tl.exp2(scaled - rows[:, None] - columns[None, :])
    total = plan * tl.load(above + place, mask=inside, other=0.0)
    to_rows, to_columns = -tl.sum(total, 1), -tl.sum(total, 0)
    for back in range(iterations):
        step = last - back
        # A log-sum-exp hands its gradient on in the shares of its terms.
        share = tl.exp2(scaled - rows[:, None] - columns[None, :] + log2_m)
        passed = share * to_columns[None, :]
        total += passed
        to_rows -= tl.sum(passed, 1)
        before = column_history + (step - 1) * m + column
        columns = tl.load(before, mask=(column < m) & (back < iterations - 1), other=0.0)
        share = tl.exp2(scaled - rows[:, None] - columns[None, :] + log2_n)
        passed = share * to_rows[:, None]
        total += passed
        to_columns = -tl.sum(passed, 0)
        to_rows = tl.zeros((ROWS,), tl.float32)
        before = row_history + (step - 1) * n + row
        rows = tl.load(before, mask=(row < n) & (back < iterations - 1), other=0.0)
    tl.store(slope + place, total, mask=inside)


def _launch(kernel, similarity: Tensor, iterations: int, *tensors: Tensor) -> None:
    n, m = similarity.shape[-2:]
    rows, columns = _tile(n, m)
    problems = similarity.numel() // (n * m)
    warps = min(16, max(1, rows * columns // 256))
    kernel[(problems,)](
        similarity, *tensors, n, m, math.log2(n), math.log2(m), iterations,
        ROWS=rows, COLUMNS=columns, num_warps=warps,
    )  # fmt: skip


class BalancedAssignment(Fused):
    """Plans of similarities (..., J, P), with the potentials of all iterations."""

    @staticmethod
    def run(similarity, iterations):
        *batch, n, m = similarity.shape
        plan = torch.empty_like(similarity)
        row_history = similarity.new_empty((*batch, iterations, n))
        column_history = similarity.new_empty((*batch, iterations, m))
        _launch(_forward, similarity, iterations, plan, row_history, column_history)
        return plan, row_history, column_history

    @staticmethod
    def keep(inputs, output):
        similarity, iterations = inputs
        return similarity, *output[1:], iterations

    @staticmethod
    def slopes(grad, similarity, row_history, column_history, iterations):
        slope = torch.empty_like(similarity)
        _launch(_backward, similarity, iterations, grad, row_history, column_history, slope)
        return slope
