"""Optimal transport: the balanced assignment and the debiased Sinkhorn divergence.

Measures are uniform, but for :func:`padded_transport`. Everything is batched over leading
dimensions, works in the log domain, has no data-dependent control flow and so runs inside
``torch.func`` transforms and CUDA graphs.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from brio_core import kernels

# Points of a measure that the fused iterations hold at once.
LARGEST_SIDE = 64
# Factors and ROIs of an assignment that the fused iterations hold at once.
MOST_FACTORS, MOST_ROIS = 16, 1024


def balanced_assignment(similarity: Tensor, iterations: int = 60) -> Tensor:
    """The shared assignment Pi (Eq. shared_assignment) from final logits (..., J, P).

    Log-domain Sinkhorn towards row masses 1/J and column masses 1/P. Columns are scaled last, so
    what the iterations leave is an error of the rows: see :func:`marginal_error`.
    """
    n_rows, n_columns = similarity.shape[-2:]
    fits = n_rows <= MOST_FACTORS and n_columns <= MOST_ROIS
    if fits and kernels.usable(similarity, "assignment"):
        from brio_core.kernels.assignment import BalancedAssignment

        return BalancedAssignment.apply(similarity, iterations)[0]
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


class Transport(NamedTuple):
    """What Sinkhorn iterations leave behind for costs (..., n, m); nothing carries a gradient."""

    plan: Tensor
    entropy: Tensor
    """The dual value less <plan, cost>: epsilon KL(plan || uniform) at convergence."""


def negative_potentials(
    to_rows: Tensor, to_columns: Tensor, iterations: int, symmetric: bool
) -> tuple[Tensor, Tensor]:
    """Potentials over -epsilon, (..., n) and (..., m); the same if the problem is symmetric.

    Both inputs are -cost / epsilon (..., n, m) plus the logarithms of the masses that are summed
    over.
    """
    # Eq. app_sinkhorn_log_updates.
    phi, psi = torch.zeros_like(to_rows[..., 0]), torch.zeros_like(to_rows[..., 0, :])
    for _ in range(iterations):
        update = (to_rows - psi[..., None, :]).logsumexp(-1)
        if symmetric:
            # The mean with the old potential keeps the fixed point and ends its oscillation.
            phi = psi = (phi + update) / 2
        else:
            phi, psi = update, (to_columns - update[..., None]).logsumexp(-2)
    return phi, psi


def solve_plain(cost: Tensor, epsilon: float, iterations: int, symmetric: bool) -> Transport:
    """:func:`solve` in torch operations, for any device, dtype and size."""
    n, m = cost.shape[-2:]
    scaled = cost / -epsilon
    sides = (scaled - math.log(m), scaled - math.log(n))
    phi, psi = negative_potentials(*sides, iterations, symmetric)
    logarithm = scaled - phi[..., None] - psi[..., None, :]
    plan = logarithm.exp() / (n * m)
    # Eq. app_sinkhorn_dual bounds the value from below for any potentials, converged or not.
    phi, psi = phi * -epsilon, psi * -epsilon
    dual = phi.mean(-1) + psi.mean(-1) + epsilon * (1 - plan.sum((-2, -1)))
    return Transport(plan, dual - (plan * cost).sum((-2, -1)))


def solve(cost: Tensor, epsilon: float, iterations: int, symmetric: bool = False) -> Transport:
    """Run Sinkhorn iterations on detached costs (..., n, m): one kernel on a GPU."""
    cost = cost.detach()
    if max(cost.shape[-2:]) <= LARGEST_SIDE and kernels.usable(cost, "sinkhorn"):
        from brio_core.kernels.sinkhorn import Sinkhorn

        return Transport(*Sinkhorn.apply(cost, epsilon, iterations, symmetric))
    return solve_plain(cost, epsilon, iterations, symmetric)


def transport_cost(
    cost: Tensor, epsilon: float, iterations: int = 50, symmetric: bool = False
) -> Tensor:
    """OT_epsilon (Eq. app_sinkhorn_regularized_ot) of costs (..., n, m).

    ``symmetric`` costs, those of measures with themselves, get the averaged update with one
    potential for both sides. By the envelope theorem the gradient with respect to the cost is the
    plan.
    """
    result = solve(cost, epsilon, iterations, symmetric)
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
    to_columns = scaled + row_mass[..., None]
    phi, psi = negative_potentials(to_rows, to_columns, iterations, symmetric)
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
        transport_cost(squared_distances(side, side), epsilon, iterations, symmetric=True)
        for side in (x, y)
    ]
    return transport_cost(squared_distances(x, y), epsilon, iterations) - sum(alone) / 2
