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


def balanced_assignment(similarity: Tensor, iterations: int = 60) -> Tensor:
    """The shared assignment Pi (Eq. shared_assignment) from final logits (..., J, P).

    Log-domain Sinkhorn towards row masses 1/J and column masses 1/P. Columns are scaled last, so
    what the iterations leave is an error of the rows: see :func:`marginal_error`.
    """
    if kernels.usable(similarity):
        from brio_core.kernels import assignment as fused

        if fused.fits(similarity):
            return fused.balanced_assignment(similarity, iterations)
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


class Transport(NamedTuple):
    """What Sinkhorn iterations leave behind for costs (..., n, m); nothing carries a gradient."""

    phi: Tensor
    psi: Tensor
    plan: Tensor
    entropy: Tensor
    """The dual value less <plan, cost>: epsilon KL(plan || uniform) at convergence."""


def _negative_potentials(
    to_rows: Tensor, to_columns: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    # Eq. app_sinkhorn_log_updates for potentials over -epsilon. The kernels are -cost / epsilon
    # plus the logarithms of the masses that are summed over.
    psi = torch.zeros_like(to_rows[..., 0, :])
    phi = torch.zeros_like(to_rows[..., 0])
    for _ in range(iterations):
        phi = (to_rows - psi[..., None, :]).logsumexp(-1)
        psi = (to_columns - phi[..., None]).logsumexp(-2)
    return phi, psi


def _symmetric_negative_potential(to_rows: Tensor, iterations: int) -> Tensor:
    # Averaging with the old potential keeps the symmetric fixed point and ends its oscillation.
    phi = torch.zeros_like(to_rows[..., 0])
    for _ in range(iterations):
        phi = (phi + (to_rows - phi[..., None, :]).logsumexp(-1)) / 2
    return phi


def solve_plain(cost: Tensor, epsilon: float, iterations: int, symmetric: bool) -> Transport:
    """:func:`solve` in torch operations, for any device, dtype and size."""
    n, m = cost.shape[-2:]
    scaled = cost / -epsilon
    to_rows = scaled - math.log(m)
    if symmetric:
        phi = psi = _symmetric_negative_potential(to_rows, iterations)
    else:
        phi, psi = _negative_potentials(to_rows, scaled - math.log(n), iterations)
    logarithm = scaled - phi[..., None] - psi[..., None, :]
    plan = logarithm.exp() / (n * m)
    # Eq. app_sinkhorn_dual bounds the value from below for any potentials, converged or not.
    phi, psi = phi * -epsilon, psi * -epsilon
    dual = phi.mean(-1) + psi.mean(-1) + epsilon * (1 - plan.sum((-2, -1)))
    return Transport(phi, psi, plan, dual - (plan * cost).sum((-2, -1)))


def solve(cost: Tensor, epsilon: float, iterations: int, symmetric: bool = False) -> Transport:
    """Run Sinkhorn iterations on detached costs: one fused kernel on CUDA, plain torch elsewhere.

    ``symmetric`` costs get the averaged update with one potential for both sides.
    """
    cost = cost.detach()
    with torch.no_grad():
        if kernels.usable(cost):
            from brio_core.kernels import sinkhorn as fused

            if fused.fits(cost):
                return Transport(*fused.solve(cost, epsilon, iterations, symmetric))
        return solve_plain(cost, epsilon, iterations, symmetric)


def sinkhorn_potentials(
    cost: Tensor, epsilon: float, iterations: int = 50
) -> tuple[Tensor, Tensor]:
    """Dual potentials phi (..., n) and psi (..., m) of costs (..., n, m), without gradient."""
    result = solve(cost, epsilon, iterations)
    return result.phi, result.psi


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
        phi = psi = _symmetric_negative_potential(to_rows, iterations)
    else:
        phi, psi = _negative_potentials(to_rows, scaled + row_mass[..., None], iterations)
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
    return _Divergence.apply(x, y, epsilon, iterations)[0]


class _Divergence(torch.autograd.Function):
    """Value and gradients in one go: the plans give both."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, y, epsilon, iterations):
        points = torch.cat([x, y], -2)
        # Distances do not change under a common shift, and rounding is least around the centre.
        points = points - points.mean(-2, keepdim=True)
        cost = squared_distances(points, points)
        value, plans = solve_divergence(cost, x.shape[-2], epsilon, iterations)
        # Eq. app_sinkhorn_representation_gradients: 2 sum_h plan_ih (z_i - z_h).
        slope = (plans.sum(-1, keepdim=True) * points - plans @ points) * 2
        return value, slope

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1])
        ctx.mark_non_differentiable(output[1])
        ctx.count = inputs[0].shape[-2]

    @staticmethod
    def backward(ctx, grad, _):
        slope = grad[..., None, None] * ctx.saved_tensors[0]
        return slope[..., : ctx.count, :], slope[..., ctx.count :, :], None, None


def solve_divergence(
    cost: Tensor, count: int, epsilon: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Divergence (...) of the first ``count`` of n + m points from the others, and its plans.

    ``cost`` (..., n + m, n + m) holds all distances. The plans stand where their costs do, those
    of a measure with itself with a minus: so they are the slope of the value as a function of the
    cost, entry by entry, but for the factor 1/2 of the self terms.
    """
    solver = solve_divergence_plain
    if kernels.usable(cost):
        from brio_core.kernels import sinkhorn as fused

        if max(count, cost.shape[-1] - count) <= fused.LARGEST_SIDE:
            solver = fused.solve_divergence
    terms, plans = solver(cost, count, epsilon, iterations)
    return terms[..., 0] - (terms[..., 1] + terms[..., 2]) / 2, plans


def solve_divergence_plain(
    cost: Tensor, count: int, epsilon: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """The three transport values (..., 3) and the plans, in torch operations."""
    blocks = cost[..., :count, count:], cost[..., :count, :count], cost[..., count:, count:]
    cross, of_x, of_y = (
        solve_plain(block, epsilon, iterations, symmetric)
        for block, symmetric in zip(blocks, (False, True, True))
    )
    values = [
        part.entropy + (part.plan * block).sum((-2, -1))
        for part, block in zip((cross, of_x, of_y), blocks)
    ]
    above = torch.cat([-of_x.plan, cross.plan], -1)
    below = torch.cat([cross.plan.mT, -of_y.plan], -1)
    return torch.stack(values, -1), torch.cat([above, below], -2)
