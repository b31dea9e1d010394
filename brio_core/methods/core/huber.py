"""Huber regressions of many outcomes on the same few columns, all at once."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from brio_core import kernels
from brio_core.connectivity.graphs import true_median

# Residuals beyond so many deviations count less; 95 % efficient for normal noise.
TUNING = 1.345
# The median absolute value of a standard normal variable.
NORMAL_MEDIAN = 0.6745
SMALLEST_SCALE = 1e-6
RIDGE = 1e-6
# A column of which the others leave a smaller share is one of them: float32 cannot tell.
ALIASED = 1e-4
# Longer samples than a program holds are sorted.
LONGEST_SAMPLE = 8192


@contextmanager
def full_precision() -> Iterator[None]:
    """Float32 products of float32 numbers: statistics are no place for TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def huber_regression(values: Tensor, design: Tensor, iterations: int = 10) -> tuple[Tensor, Tensor]:
    """Coefficients and their squared standard errors, both (R, q, E).

    Least squares, then iterations that reweigh by the residuals' median absolute value. A column
    that the columns before it explain gets the coefficient zero.

    Parameters
    ----------
    values : (R, E, n), E outcomes in each of R samples
    design : (R, n, q), the columns of each sample
    """
    columns = design.shape[-1]
    products = (design[..., :, None] * design[..., None, :]).flatten(-2).mT
    ridge = RIDGE * torch.eye(columns, dtype=values.dtype, device=values.device)[..., None]

    def solve(weights: Tensor) -> tuple[Tensor, Tensor]:
        gram = (products @ weights.mT).unflatten(-2, (columns, columns)) + ridge
        inverse = swept_inverse(gram)
        moments = design.mT @ (weights * values).mT
        return (inverse * moments[..., None, :, :]).sum(-2), inverse

    with full_precision():
        coefficients, _ = solve(torch.ones_like(values))
        for _ in range(iterations):
            residuals = (values - coefficients.mT @ design.mT).abs_()
            scale = _median(residuals).div_(NORMAL_MEDIAN).clamp_min_(SMALLEST_SCALE)
            weights = (TUNING * scale[..., None]) / residuals.clamp_min_(1e-30)
            coefficients, inverse = solve(weights.clamp_max_(1))
    diagonal = inverse.diagonal(dim1=-3, dim2=-2).mT
    return coefficients, scale.square()[..., None, :] * diagonal


def _median(magnitudes: Tensor) -> Tensor:
    """Of the last axis; a GPU finds the same numbers without sorting."""
    if magnitudes.shape[-1] <= LONGEST_SAMPLE and kernels.usable(magnitudes, "median"):
        from brio_core.kernels.selection import median

        return median(magnitudes)
    return true_median(magnitudes, -1)


def swept_inverse(gram: Tensor) -> Tensor:
    """Inverses of symmetric matrices (..., q, q, E), by Gauss and Jordan's elimination.

    Rows and columns of what the columns before explain are zero.
    """
    gram = gram.clone()
    least = ALIASED * gram.diagonal(dim1=-3, dim2=-2)
    for column in range(gram.shape[-2]):
        pivot = gram[..., column, column, :]
        factor = torch.where(pivot > least[..., column], 1 / pivot, 0)
        row = gram[..., column, :, :] * factor[..., None, :]
        others = gram[..., :, column, :].clone()
        gram.sub_(others[..., :, None, :] * row[..., None, :, :])
        gram[..., column, :, :] = row
        gram[..., :, column, :] = others.neg_().mul_(factor[..., None, :])
        gram[..., column, column, :] = factor
    return gram
