"""Sinkhorn iterations as one operator that ``torch.func``, CUDA graphs and compilers accept."""

import torch
from torch import Tensor

LARGEST_SIDE = 64


def fits(cost: Tensor) -> bool:
    """Whether one problem fits into the registers of a program."""
    return max(cost.shape[-2:]) <= LARGEST_SIDE


@torch.library.custom_op("brio::sinkhorn", mutates_args=())
def solve(
    cost: Tensor, epsilon: float, iterations: int, symmetric: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """phi, psi, plan and entropy of :class:`brio_core.methods.layers.transport.Transport`."""
    if cost.is_cuda:
        from brio_core.kernels.sinkhorn_triton import launch

        return launch(cost.contiguous(), epsilon, iterations, symmetric)
    from brio_core.methods.layers.transport import solve_plain

    # The outputs of an operator must not share memory, as two equal potentials would.
    return tuple(part.clone() for part in solve_plain(cost, epsilon, iterations, symmetric))


@solve.register_fake
def _(cost: Tensor, epsilon: float, iterations: int, symmetric: bool):
    return (
        cost.new_empty(cost.shape[:-1]),
        cost.new_empty((*cost.shape[:-2], cost.shape[-1])),
        cost.new_empty(cost.shape),
        cost.new_empty(cost.shape[:-2]),
    )


@solve.register_vmap
def _(info, in_dims, cost: Tensor, epsilon: float, iterations: int, symmetric: bool):
    # Leading dimensions are a batch already, so a mapped one is simply one more of them.
    return solve(cost.movedim(in_dims[0], 0), epsilon, iterations, symmetric), (0, 0, 0, 0)


@torch.library.custom_op("brio::sinkhorn_divergence", mutates_args=())
def solve_divergence(
    cost: Tensor, count: int, epsilon: float, iterations: int
) -> tuple[Tensor, Tensor]:
    """Values and plans of :func:`transport.solve_divergence_plain`, in one kernel."""
    if cost.is_cuda:
        from brio_core.kernels.sinkhorn_triton import launch_divergence

        return launch_divergence(cost.contiguous(), count, epsilon, iterations)
    from brio_core.methods.layers.transport import solve_divergence_plain

    return solve_divergence_plain(cost, count, epsilon, iterations)


@solve_divergence.register_fake
def _(cost: Tensor, count: int, epsilon: float, iterations: int):
    return cost.new_empty((*cost.shape[:-2], 3)), cost.new_empty(cost.shape)


@solve_divergence.register_vmap
def _(info, in_dims, cost: Tensor, count: int, epsilon: float, iterations: int):
    return solve_divergence(cost.movedim(in_dims[0], 0), count, epsilon, iterations), (0, 0)
