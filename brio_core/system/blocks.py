"""Statistics and products of a table that is too large to be held twice.

A table (N, D) has one row per subject. It is worked on in blocks, several at once where there are
threads. Where blocks begin depends on the table alone, and sums over them are in order and in
float64, so the number of threads changes no bytes.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from brio_core.system.threads import Run, spread

# A spread below this is rounding: the column is constant.
CONSTANT = 1e-12
# Entries of a block of columns: 8 MB in float64.
COLUMN_BLOCK = 2**20
# Entries of a block of rows: its copy in float64 stays in a core's cache between two products.
ROW_BLOCK = 2**18
# Most parts of the rows with a sum of their own: enough for many threads, few enough to be kept.
STRIPES = 32


def column_means(table: Tensor) -> Tensor:
    """The mean (D,) of every column, in float64."""
    return torch.cat(over_columns(table, lambda columns, values: values.mean(0)))


def mean_and_scale(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of every column and one over its deviation, which is zero for a constant column."""
    mean, deviation = values.mean(0), values.std(0, correction=0)
    return mean, torch.where(deviation > CONSTANT, 1 / deviation.clamp(min=CONSTANT), 0.0)


def replace_columns(table: Tensor, replace: Callable[[slice, Tensor], Tensor]) -> None:
    """Put ``replace(columns, values)`` in the place of the values, which it gets in float64."""

    def work(columns: slice, values: Tensor) -> None:
        table[:, columns] = replace(columns, values)

    over_columns(table, work)


def over_columns(table: Tensor, work: Callable[[slice, Tensor], Any]) -> list:
    """What ``work(columns, values)`` gives for blocks of columns, which it gets in float64."""
    rows, columns = table.shape
    # A multiple of what torch sums side by side: the last columns of a block are not summed in
    # another order than they would be amid the table.
    width = max(64, COLUMN_BLOCK // max(1, rows) // 64 * 64)
    blocks = [slice(first, min(first + width, columns)) for first in range(0, columns, width)]
    return spread(lambda part: work(part, table[:, part].double()), blocks, table.device)


def sweep(
    run: Run, table: Tensor, vectors: Tensor, between: Callable[[slice, Tensor], Tensor]
) -> tuple[Tensor, Tensor]:
    """``T = X V`` and ``X' U`` for ``U = between(rows, T[rows])``, reading the table X once.

    Parameters
    ----------
    run : what :func:`brio_core.system.threads.workers` gives
    table : (N, D)
    vectors : (D, k)
        Products are computed in the type of the vectors.
    between : gets and returns (n, .) in that type

    Returns
    -------
    T (N, k) in the type of the vectors and X' U (D, .) in float64
    """
    through = vectors.new_empty(len(table), vectors.shape[1])
    height = max(1, ROW_BLOCK // table.shape[1])
    stripe = max(height, -(-len(table) // STRIPES))

    def work(first: int) -> Tensor:
        total, room = 0.0, None
        last = min(first + stripe, len(table))
        for start in range(first, last, height):
            rows = slice(start, min(start + height, last))
            block = table[rows]
            if block.dtype != vectors.dtype:
                room = block.new_empty(block.shape, dtype=vectors.dtype) if room is None else room
                block = room[: len(block)].copy_(block)
            through[rows] = block @ vectors
            total = total + (block.T @ between(rows, through[rows])).double()
        return total

    total = 0.0
    for part in run(work, range(0, len(table), stripe)):
        total = total + part
    return through, total
