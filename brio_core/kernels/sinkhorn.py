"""Sinkhorn iterations on many small problems: one fused kernel on a GPU, plain torch elsewhere.

The kernel is one operator that ``torch.func``, CUDA graphs and compilers accept.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from brio_core import kernels

LARGEST_SIDE = 64


class Transport(NamedTuple):
    """What Sinkhorn iterations leave behind for costs (..., n, m); nothing carries a gradient."""

    phi: Tensor
    psi: Tensor
    plan: Tensor
    entropy: Tensor
    """The dual value less <plan, cost>: epsilon KL(plan || uniform) at convergence."""


def negative_potentials(
    to_rows: Tensor, to_columns: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Potentials over -epsilon, (..., n) and (..., m).

    Both inputs are -cost / epsilon (..., n, m) plus the logarithms of the masses that are summed
    over.
    """
    # Eq. app_sinkhorn_log_updates.
    psi = torch.zeros_like(to_rows[..., 0, :])
    phi = torch.zeros_like(to_rows[..., 0])
    for _ in range(iterations):
        phi = (to_rows - psi[..., None, :]).logsumexp(-1)
        psi = (to_columns - phi[..., None]).logsumexp(-2)
    return phi, psi


def symmetric_negative_potential(to_rows: Tensor, iterations: int) -> Tensor:
    """The one potential of a measure with itself."""
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
        phi = psi = symmetric_negative_potential(to_rows, iterations)
    else:
        phi, psi = negative_potentials(to_rows, scaled - math.log(n), iterations)
    logarithm = scaled - phi[..., None] - psi[..., None, :]
    plan = logarithm.exp() / (n * m)
    # Eq. app_sinkhorn_dual bounds the value from below for any potentials, converged or not.
    phi, psi = phi * -epsilon, psi * -epsilon
    dual = phi.mean(-1) + psi.mean(-1) + epsilon * (1 - plan.sum((-2, -1)))
    return Transport(phi, psi, plan, dual - (plan * cost).sum((-2, -1)))


def solve(cost: Tensor, epsilon: float, iterations: int, symmetric: bool = False) -> Transport:
    """Run Sinkhorn iterations on detached costs (..., n, m).

    ``symmetric`` costs get the averaged update with one potential for both sides.
    """
    cost = cost.detach()
    with torch.no_grad():
        if max(cost.shape[-2:]) <= LARGEST_SIDE and kernels.usable(cost, "sinkhorn"):
            return Transport(*solve_fused(cost, epsilon, iterations, symmetric))
        return solve_plain(cost, epsilon, iterations, symmetric)


@torch.library.custom_op("brio::sinkhorn", mutates_args=())
def solve_fused(
    cost: Tensor, epsilon: float, iterations: int, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The fields of :class:`Transport`, for sides up to ``LARGEST_SIDE``."""
    if cost.is_cuda:
        from brio_core.kernels.sinkhorn_triton import launch

        return launch(cost.contiguous(), epsilon, iterations, symmetric)
    # The outputs of an operator must not share memory, as two equal potentials would.
    return tuple(part.clone() for part in solve_plain(cost, epsilon, iterations, symmetric))


@solve_fused.register_fake
def _(cost: Tensor, epsilon: float, iterations: int, symmetric: bool):
    return (
        cost.new_empty(cost.shape[:-1]),
        cost.new_empty((*cost.shape[:-2], cost.shape[-1])),
        cost.new_empty(cost.shape),
        cost.new_empty(cost.shape[:-2]),
    )


@solve_fused.register_vmap
def _(info, in_dims, cost: Tensor, epsilon: float, iterations: int, symmetric: bool):
    # Leading dimensions are a batch already, so a mapped one is simply one more of them.
    return solve_fused(cost.movedim(in_dims[0], 0), epsilon, iterations, symmetric), (0, 0, 0, 0)
