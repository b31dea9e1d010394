"""Exact l2-penalised linear models, for every strength of the penalty at once.

An l2 solution lies in the span of the training subjects, ``w = X' a``. With more features than
subjects all work is therefore done with the Gram matrix ``X X'`` and nothing is approximated.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brio_core.system.threads import one_thread

Path = tuple[Tensor, Tensor]
Product = Callable[[Tensor], Tensor]
Solve = Callable[[Tensor, Tensor], Tensor]
# Curvature at or below this (of 1/4) is rounding: such a subject is fitted for good.
NEGLIGIBLE_CURVATURE = 1e-14


@one_thread()
def logistic_path(design: Tensor, label: Tensor, penalties: Sequence[float]) -> Path:
    """Minimise ``C * sum(log-loss) + |w|^2 / 2`` with a free intercept, for each C in turn.

    Newton's method in the coefficients ``a``, each C starting from the solution of the last.

    Parameters
    ----------
    design : (N, D) float64
    label : (N,) in {0, 1}
    penalties : inverse strengths C

    Returns
    -------
    weights (len(penalties), D) and intercepts (len(penalties),)
    """
    label = label.to(design.dtype)
    product, solve = _gram_operations(design)
    zero = torch.zeros_like(label)
    point = _Point(zero, zero.new_zeros(()), zero)
    points = []
    for strength in penalties:
        for _ in range(50):
            aim, decrease = _newton_aim(point, label, strength, product, solve)
            value = point.objective(label, strength)
            # Convergence is quadratic: the step that gains this much leaves its square.
            if decrease < 1e-8 * value:
                point = aim
                break
            size = 1.0
            while point.towards(aim, size).objective(label, strength) > value and size > 1e-6:
                size /= 2
            point = point.towards(aim, size)
        points.append(point)
    coefficients = torch.stack([point.coefficient for point in points])
    return coefficients @ design, torch.stack([point.intercept for point in points])


class _Point(NamedTuple):
    """Coefficients of the subjects, the intercept, and the margins ``XX' a + b`` they give."""

    coefficient: Tensor
    intercept: Tensor
    margin: Tensor

    def towards(self, aim: "_Point", size: float) -> "_Point":
        return _Point(*(here + size * (there - here) for here, there in zip(self, aim)))

    def objective(self, label: Tensor, strength: float) -> float:
        loss = (functional.softplus(self.margin) - label * self.margin).sum()
        square = self.coefficient @ (self.margin - self.intercept)
        return float(strength * loss + square / 2)


def _newton_aim(
    point: _Point, label: Tensor, strength: float, product: Product, solve: Solve
) -> tuple[_Point, float]:
    """Where a full Newton step leads, and how fast the objective falls at its beginning."""
    probability = torch.sigmoid(point.margin)
    curvature = strength * (probability * (1 - probability)).clamp(NEGLIGIBLE_CURVATURE)
    residual = strength * (label - probability)
    # Stationary where (I + S XX') a = S (margin - b) + residual and the a sum to zero.
    sides = torch.stack([curvature * point.margin + residual, curvature], dim=1)
    solved, constant = solve(curvature, sides).unbind(1)
    intercept = solved.sum() / constant.sum()
    coefficient = solved - intercept * constant
    fitted = product(coefficient)
    step = fitted + intercept - point.margin
    uphill = point.coefficient @ (fitted - (point.margin - point.intercept)) - residual @ step
    return _Point(coefficient, intercept, fitted + intercept), -float(uphill)


def _gram_operations(design: Tensor) -> tuple[Product, Solve]:
    """``v -> XX' v`` and ``(s, r) -> (I + diag(s) XX')^-1 r``, by the smaller of XX' and X'X."""
    if design.shape[0] > design.shape[1]:

        def solve(scale: Tensor, sides: Tensor) -> Tensor:
            system = (design.T * scale) @ design
            system.diagonal().add_(1)
            inner = torch.cholesky_solve(design.T @ sides, torch.linalg.cholesky(system))
            return sides - scale[:, None] * (design @ inner)

        return lambda vector: design @ (design.T @ vector), solve

    gram = gram_matrix(design)

    def solve(scale: Tensor, sides: Tensor) -> Tensor:
        root = scale.sqrt()[:, None]
        system = (gram * root).mul_(root.T)
        system.diagonal().add_(1)
        inner = torch.cholesky_solve(root * (gram @ sides), torch.linalg.cholesky(system))
        return sides - root * inner

    return lambda vector: gram @ vector, solve


def gram_matrix(design: Tensor, blocks: int = 4) -> Tensor:
    """``X X'``, exactly symmetric: only blocks on and below the diagonal are multiplied out."""
    gram = design.new_empty(len(design), len(design))
    for rows in torch.arange(len(design)).tensor_split(blocks):
        if len(rows) == 0:
            continue
        first, last = int(rows[0]), int(rows[-1]) + 1
        gram[first:last, :last] = design[first:last] @ design[:last].T
        gram[:first, first:last] = gram[first:last, :first].T
    return gram


@one_thread()
def ridge_grid(
    design: Tensor, target: Tensor, sample: Tensor, scales: Tensor, penalties: Sequence[float]
) -> Path:
    """Minimise ``sum(sample * (target - Z w - b)^2) + alpha * |w|^2`` for features Z = X * scale.

    Parameters
    ----------
    design : (N, D) float64
    target, sample : (N,)
        What is predicted, and the weight of every subject.
    scales : (S, D)
        Factors of the features, one set after another.
    penalties : strengths alpha

    Returns
    -------
    weights (S, len(penalties), D) of the scaled features and intercepts (S, len(penalties))
    """
    sample, target = sample.to(design.dtype), target.to(design.dtype)
    share, root = sample / sample.sum(), sample.sqrt()
    centre, middle = share @ design, share @ target
    centred = (design - centre).mul_(root[:, None])
    deviation = root * (target - middle)
    alphas = torch.tensor(penalties, dtype=design.dtype, device=design.device)[:, None]
    scaled = torch.empty_like(centred)
    weights = []
    for scale in scales:
        torch.mul(centred, scale, out=scaled)
        values, vectors = torch.linalg.eigh(gram_matrix(scaled))
        # A Gram matrix has no negative eigenvalue but by rounding.
        coefficients = (vectors.T @ deviation) / (values.clamp(min=0) + alphas)
        weights.append(coefficients @ vectors.T @ scaled)
    weights = torch.stack(weights)
    return weights, middle - torch.einsum("sad,sd->sa", weights, scales * centre)


def balanced_weights(site: Tensor, label: Tensor) -> Tensor:
    """Weights of mean one that give every pair of site and class the same total."""
    cell = torch.stack([site, label], dim=1).unique(dim=0, return_inverse=True)[1]
    count = torch.bincount(cell)
    return len(cell) / (len(count) * count[cell].double())
