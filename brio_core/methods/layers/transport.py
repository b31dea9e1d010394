"""Optimal transport: the balanced assignment and the debiased Sinkhorn divergence.

Measures are uniform, but for :func:`padded_transport`. Everything is batched over leading
dimensions, works in the log domain, has no data-dependent control flow and so runs inside
``torch.func`` transforms and CUDA graphs.
"""

import math

import torch
from torch import Tensor

from brio_core import kernels
from brio_core.kernels.sinkhorn import (
    negative_potentials,
    solve,
    symmetric_negative_potential,
)


def balanced_assignment(similarity: Tensor, iterations: int = 60) -> Tensor:
    """The shared assignment Pi (Eq. shared_assignment) from final logits (..., J, P).

    Log-domain Sinkhorn towards row masses 1/J and column masses 1/P. Columns are scaled last, so
    what the iterations leave is an error of the rows: see :func:`marginal_error`.
    """
    if kernels.usable(similarity, "assignment"):
        from brio_core.kernels import assignment as fused

        if fused.fits(similarity):
            return fused.BalancedAssignment.apply(similarity, iterations)[0]
    return balanced_assignment_plain(similarity, iterations)


def balanced_assignment_plain(similarity: Tensor, iterations: int) -> Tensor:
    """:func:`balanced_assignment` in torch operations, for any device, dtype and size."""
    n_rows, n_columns = similarity.shape[-2:]
    row = torch.zeros_like(similarity[..., 0])
    column = torch.zeros_like(similarity[..., 0, :])
    for _ in range(iterations):
        row = (similarity - column[..., None, :]).logsumexp(-1) + math.log(n_rows)
        column = (similarity - row[..., None]).logsumexp(-2) + math.log(n_columns)
    return (similarity - row[..., None] - column[..., None, :]).exp()


def marginal_error(plan: Tensor) -> Tensor:
    """Largest relative deviation of a row or column mass from uniform, (...)."""
    n_rows, n_columns = plan.shape[-2:]
    rows = (plan.sum(-1) * n_rows - 1).abs().amax(-1)
    columns = (plan.sum(-2) * n_columns - 1).abs().amax(-1)
    return torch.maximum(rows, columns)


def transport_cost(cost: Tensor, epsilon: float, iterations: int = 50) -> Tensor:
    """OT_epsilon (Eq. app_sinkhorn_regularized_ot) of costs (..., n, m).

    By the envelope theorem the gradient with respect to the cost is the plan.
    """
    result = solve(cost, epsilon, iterations)
    return result.entropy + (result.plan * cost).sum((-2, -1))


def self_transport_cost(cost: Tensor, epsilon: float, iterations: int = 50) -> Tensor:
    """OT_epsilon of a measure with itself, from symmetric costs (..., n, n)."""
    result = solve(cost, epsilon, iterations, symmetric=True)
    return result.entropy + (result.plan * cost).sum((-2, -1))


def padded_transport(
    cost: Tensor,
    row_mass: Tensor,
    column_mass: Tensor,
    epsilon: float,
    iterations: int,
    symmetric: bool = False,
) -> Tensor:
    """OT_epsilon (Eq. app_sinkhorn_regularized_ot) of measures of unequal sizes, (...).

    Parameters
    ----------
    cost : (..., n, m)
        Finite, also where a point has no mass.
    row_mass, column_mass : (..., n) and (..., m)
        Logarithms of masses that sum to one.
    symmetric : bool
        Of measures with themselves.
    """
    scaled = cost / -epsilon
    to_rows = scaled + column_mass[..., None, :]
    if symmetric:
        phi = psi = symmetric_negative_potential(to_rows, iterations)
    else:
        phi, psi = negative_potentials(to_rows, scaled + row_mass[..., None], iterations)
    plan = (to_rows + row_mass[..., None] - phi[..., None] - psi[..., None, :]).exp()
    # Eq. app_sinkhorn_dual, with potentials over -epsilon.
    dual = (row_mass.exp() * phi).sum(-1) + (column_mass.exp() * psi).sum(-1)
    return epsilon * (1 - plan.sum((-2, -1)) - dual)


def squared_distances(x: Tensor, y: Tensor) -> Tensor:
    """Squared Euclidean distances (..., n, m) of points (..., n, d) and (..., m, d)."""
    return x.square().sum(-1)[..., None] + y.square().sum(-1)[..., None, :] - 2 * x @ y.mT


def sinkhorn_divergence(x: Tensor, y: Tensor, epsilon: float, iterations: int = 50) -> Tensor:
    """Debiased Sinkhorn divergence (Eq. app_sinkhorn_divergence) with squared Euclidean cost.

    Parameters
    ----------
    x, y : (..., n, d) and (..., m, d)
        Points with uniform weights.

    Returns
    -------
    (...)
        Differentiable in both; the potentials are held (envelope theorem).
    """
    points = torch.cat([x, y], -2)
    # Distances do not change under a common shift, and rounding is least around the centre.
    centre = points.mean(-2, keepdim=True)
    x, y = x - centre, y - centre
    alone = [
        self_transport_cost(squared_distances(side, side), epsilon, iterations) for side in (x, y)
    ]
    return transport_cost(squared_distances(x, y), epsilon, iterations) - sum(alone) / 2
