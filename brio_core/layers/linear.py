"""Exact l2-penalised logistic regression by Newton's method."""

import torch
from torch import Tensor
from torch.nn import functional


def logistic_path_point(
    design: Tensor, label: Tensor, inverse_penalty: float, start: Tensor, iterations: int = 50
) -> Tensor:
    """Minimise ``C * sum(log-loss) + |w|^2 / 2`` over weights and a free intercept.

    ``design`` (N, D) in float64, ``label`` in {0, 1}; ``start`` and the answer are (D + 1,) with
    the intercept last. Steps are halved until the objective falls, so it converges from anywhere.
    """
    extended = torch.cat([design, torch.ones_like(design[:, :1])], dim=1)
    ridge = torch.ones_like(start)
    ridge[-1] = 0

    def objective(weight: Tensor) -> Tensor:
        margin = extended @ weight
        loss = functional.softplus(margin) - label * margin
        return inverse_penalty * loss.sum() + (ridge * weight.square()).sum() / 2

    weight, value = start, objective(start)
    for _ in range(iterations):
        probability = torch.sigmoid(extended @ weight)
        gradient = inverse_penalty * (extended.T @ (probability - label)) + ridge * weight
        curvature = inverse_penalty * probability * (1 - probability)
        hessian = (extended.T * curvature) @ extended + torch.diag(ridge)
        # The intercept has no penalty; this keeps the system solvable when all is separated.
        hessian.diagonal().add_(1e-10)
        direction = torch.linalg.solve(hessian, gradient)
        if float(gradient @ direction) < 1e-10 * max(1.0, float(value)):
            break
        size = 1.0
        while (moved := objective(weight - size * direction)) > value and size > 1e-6:
            size /= 2
        weight, value = weight - size * direction, moved
    return weight
