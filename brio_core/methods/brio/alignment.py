"""Qualification-guided alignment of class-conditional factor distributions between sites."""

from torch import Tensor

from brio_core.methods.layers.transport import transport_cost


def pair_costs(factors: Tensor, weight_matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Cross and self costs (..., E, E, 2, n, n) of all ordered site pairs.

    Eq. qualified_pairwise_distance: sum_j w_j (1 - r_i . r_h). Entry (e, e') of the self costs
    holds site e's distances to itself under the weights of the pair (e, e').
    """
    n_sites, _, n_points = factors.shape[-5:-2]
    # (..., 2, J, E, n, d): classes and factors are batch, sites and subjects are rows.
    points = factors.movedim((-4, -2), (-5, -4))
    rows = points.flatten(-3, -2)
    cross = (1 - rows @ rows.mT).unflatten(-1, (n_sites, n_points))
    cross = cross.unflatten(-3, (n_sites, n_points))
    within = 1 - points @ points.mT
    # (..., 2, J, E, E)
    weights = weight_matrix.movedim((-2, -1), (-4, -3))
    cross = (weights[..., :, None, :, None] * cross).sum(-5).transpose(-3, -2)
    within = (weights[..., :, :, None, None] * within[..., :, None, :, :]).sum(-5)
    return cross.movedim(-5, -3), within.movedim(-5, -3)


def alignment_loss(
    factors: Tensor,
    weight_matrix: Tensor,
    strength_matrix: Tensor,
    epsilon: float = 0.1,
    iterations: int = 50,
) -> Tensor:
    """The alignment loss (Eq. qualification_guided_alignment) of one balanced batch.

    The sum over unordered pairs of g S_epsilon is half the sum over ordered pairs of
    g (OT(e, e') - OT(e, e)), because g and the weights are symmetric. Ordered pairs need no
    gathers, whose backward pass would add up in an undefined order on a GPU.

    Parameters
    ----------
    factors : (..., E, 2, n, J, d)
        Unit-norm full-scan factors, n subjects of every site and class.
    weight_matrix : (..., E, E, 2, J)
    strength_matrix : (..., E, E, 2)
        Zero on the diagonal.

    Returns
    -------
    (...)
    """
    n_sites = factors.shape[-5]
    cross, within = pair_costs(factors, weight_matrix)
    excess = transport_cost(cross, epsilon, iterations)
    excess = excess - transport_cost(within, epsilon, iterations, symmetric=True)
    return (strength_matrix * excess).sum((-3, -2, -1)) / (2 * n_sites * (n_sites - 1))
