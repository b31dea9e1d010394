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
# Subjects whose products with each other are all multiplied out, those above the diagonal too.
SMALL_BLOCK = 64


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


def gram_matrix(design: Tensor) -> Tensor:
    """``X X'``, exactly symmetric: what is above the diagonal is copied from below."""
    gram = design.new_empty(len(design), len(design))
    _fill_gram(design, gram)
    return gram


def _fill_gram(design: Tensor, gram: Tensor) -> None:
    if len(design) <= SMALL_BLOCK:
        gram.copy_(design @ design.T)
        return
    half = len(design) // 2
    first, second = slice(half), slice(half, None)
    gram[second, first] = design[second] @ design[first].T
    gram[first, second] = gram[second, first].T
    for part in (first, second):
        _fill_gram(design[part], gram[part, part])


@one_thread()
def ridge_grid(
    design: Tensor,
    target: Tensor,
    sample: Tensor,
    scales: Tensor,
    penalties: Sequence[float],
    groups: Tensor | None = None,
    offsets: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Minimise ``sum(sample * (target - Z w - b)^2) + alpha * |w|^2`` for features Z = X * scale.

    Parameters
    ----------
    design : (N, D) float64
    target, sample : (N,)
        What is predicted, and the weight of every subject.
    scales : (S, D)
        Factors of the features, one set after another.
    penalties : strengths alpha
    groups : (N,) numbers of groups, or None
    offsets : (groups, D), or None
        What is added to the features of a group when the fit without it predicts it.

    Returns
    -------
    weights (S, len(penalties), D) of the scaled features, intercepts (S, len(penalties)), and
    what the fit without a subject's group predicts for it (S, len(penalties), N), where there are
    groups
    """
    sample, target = sample.to(design.dtype), target.to(design.dtype)
    share, root = sample / sample.sum(), sample.sqrt()
    centre, middle = share @ design, share @ target
    deviation = root * (target - middle)
    alphas = torch.tensor(penalties, dtype=design.dtype, device=design.device)[:, None]
    weights, left_out = [], []
    for scale in scales:
        scaled = design if bool((scale == 1).all()) else design * scale
        gram = gram_matrix(scaled)
        # Centred by the weighted mean and weighted itself, without a second design.
        mean = gram @ share
        gram = (gram - mean - mean[:, None] + share @ mean) * root * root[:, None]
        values, vectors = torch.linalg.eigh(gram)
        # A Gram matrix has no negative eigenvalue but by rounding.
        values = values.clamp(min=0)

        def to_features(coefficients: Tensor, scaled=scaled, scale=scale) -> Tensor:
            weighted = coefficients * root
            return weighted @ scaled - weighted.sum(-1, keepdim=True) * (scale * centre)

        weights.append(to_features((vectors.T @ deviation) / (values + alphas) @ vectors.T))
        if groups is not None:
            found = _left_out(
                vectors, values / (values + alphas), share.sqrt(), root * target, groups
            )
            found = found / root
            for group in () if offsets is None else groups.unique():
                # A fit without a group is one to what it predicts there.
                fitted = torch.where(groups == group, found, target)
                weight = to_features((root * fitted) @ vectors / (values + alphas) @ vectors.T)
                change = weight @ (scale * offsets[group])
                found = torch.where(groups == group, found + change[:, None], found)
            left_out.append(found)
    weights = torch.stack(weights)
    intercepts = middle - torch.einsum("sad,sd->sa", weights, scales * centre)
    return weights, intercepts, torch.stack(left_out) if left_out else None


def _left_out(
    vectors: Tensor, kept: Tensor, constant: Tensor, target: Tensor, groups: Tensor
) -> Tensor:
    """Predictions (A, N) of fits without each subject's group, none of which is fitted anew.

    The hat matrix is ``H = U diag(kept) U' + c c'``: what a penalty keeps of every eigenvector, and
    the intercept. With ``y - H y`` the residuals, those of the fit without a group g are
    ``(I - H_gg)^-1 (y - H y)_g``.
    """
    residual = target - (vectors @ (kept * (vectors.T @ target)).T).T
    residual = residual - constant * (constant @ target)
    found = torch.empty_like(residual)
    for group in groups.unique():
        members = (groups == group).nonzero().flatten()
        some, mean = vectors[members], constant[members]
        hat = (some * kept[:, None]) @ some.T + torch.outer(mean, mean)
        system = torch.eye(len(members), dtype=hat.dtype, device=hat.device) - hat
        error = torch.linalg.solve(system, residual[:, members, None])[..., 0]
        found[:, members] = target[members] - error
    return found


def balanced_weights(site: Tensor, label: Tensor) -> Tensor:
    """Weights of mean one that give every pair of site and class the same total."""
    cell = torch.stack([site, label], dim=1).unique(dim=0, return_inverse=True)[1]
    count = torch.bincount(cell)
    return len(cell) / (len(count) * count[cell].double())
