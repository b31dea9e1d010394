"""Transport against closed forms, exact assignment, and autograd through converged iterations."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.func import grad, vmap

from brio_core.methods.layers.transport import (
    negative_potentials,
    padded_transport,
    sinkhorn_divergence,
    solve,
    solve_plain,
    squared_distances,
    transport_cost,
)


def points(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def slow_transport(cost: np.ndarray, epsilon: float, iterations: int) -> float:
    """Scaling iterations and the primal objective, in plain numpy."""
    n, m = cost.shape
    eta, zeta = np.full(n, 1 / n), np.full(m, 1 / m)
    kernel, v = np.exp(-cost / epsilon), np.full(m, 1 / m)
    for _ in range(iterations):
        u = eta / (kernel @ v)
        v = zeta / (kernel.T @ u)
    plan = u[:, None] * kernel * v
    ratio = plan / (eta[:, None] * zeta)
    return float(np.sum(plan * cost) + epsilon * np.sum(plan * np.log(ratio)))


def slow_divergence(x, y, epsilon, iterations=3000) -> float:
    def transport(a, b):
        cost = ((a[:, None] - b[None]) ** 2).sum(-1).numpy()
        return slow_transport(cost, epsilon, iterations)

    return transport(x, y) - transport(x, x) / 2 - transport(y, y) / 2


@pytest.mark.parametrize("n, m", [(4, 4), (5, 3), (1, 6)])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 10.0])
def test_divergence_equals_the_slow_reading(n, m, epsilon):
    x, y = points(3, n, 2) / 2, points(3, m, 2, seed=1) / 2 + 0.5
    expected = [slow_divergence(a, b, epsilon) for a, b in zip(x, y, strict=True)]
    np.testing.assert_allclose(sinkhorn_divergence(x, y, epsilon, 3000), expected, atol=1e-7)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 5.0])
def test_two_diracs_are_at_their_squared_distance(epsilon):
    x, y = points(7, 1, 5), points(7, 1, 5, seed=1)
    expected = (x - y).square().sum((-2, -1))
    torch.testing.assert_close(sinkhorn_divergence(x, y, epsilon), expected)
    many = sinkhorn_divergence(x.expand(7, 6, 5), y.expand(7, 4, 5), epsilon)
    torch.testing.assert_close(many, expected)


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_equal_measures_are_at_distance_zero(epsilon):
    x = points(4, 6, 3)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(0))
    for y in (x, x[:, order]):
        assert sinkhorn_divergence(x, y, epsilon, 2000).abs().max() < 1e-8
    doubled = torch.cat([x, x], 1)
    assert sinkhorn_divergence(x, doubled, epsilon, 2000).abs().max() < 1e-8


def test_large_epsilon_gives_the_distance_of_means():
    # The plan becomes the product measure: mean cross cost less half the mean self costs.
    x, y = points(4, 6, 3), points(4, 5, 3, seed=1) + 1
    limit = squared_distances(x, y).mean((-2, -1)) - 0.5 * (
        squared_distances(x, x).mean((-2, -1)) + squared_distances(y, y).mean((-2, -1))
    )
    torch.testing.assert_close(limit, (x.mean(-2) - y.mean(-2)).square().sum(-1))
    torch.testing.assert_close(sinkhorn_divergence(x, y, 1e6), limit, rtol=1e-4, atol=1e-5)


def test_small_epsilon_gives_optimal_assignment():
    from scipy.optimize import linear_sum_assignment

    x, y = points(5, 7, 2), points(5, 7, 2, seed=1)
    cost = squared_distances(x, y)
    exact = [matrix.numpy()[linear_sum_assignment(matrix)].mean() for matrix in cost]
    np.testing.assert_allclose(sinkhorn_divergence(x, y, 1e-3, 20_000), exact, rtol=2e-3)


def test_divergence_is_symmetric_and_positive():
    x, y = points(20, 4, 3), points(20, 6, 3, seed=1)
    there, back = sinkhorn_divergence(x, y, 0.5, 500), sinkhorn_divergence(y, x, 0.5, 500)
    torch.testing.assert_close(there, back)
    assert (there > 0).all()


@pytest.mark.parametrize("n, m", [(4, 4), (6, 3)])
def test_gradient_equals_autograd_through_converged_iterations(n, m):
    epsilon, iterations = 2.0, 400

    def unrolled(x, y):
        def transport(cost):
            n, m = cost.shape[-2:]
            psi = torch.zeros(cost.shape[-1], dtype=cost.dtype)
            for _ in range(iterations):
                phi = -epsilon * ((psi - cost) / epsilon - math.log(m)).logsumexp(-1)
                psi = -epsilon * ((phi[:, None] - cost) / epsilon - math.log(n)).logsumexp(-2)
            return phi.mean() + psi.mean()

        cross, of_x, of_y = (squared_distances(*pair) for pair in ((x, y), (x, x), (y, y)))
        return transport(cross) - (transport(of_x) + transport(of_y)) / 2

    x, y = points(n, 3), points(m, 3, seed=1) + 0.3
    ours = grad(lambda *xy: sinkhorn_divergence(*xy, epsilon, iterations), (0, 1))(x, y)
    theirs = grad(unrolled, (0, 1))(x, y)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-8, rtol=1e-6)
    assert sinkhorn_divergence(x, y, epsilon, iterations) == pytest.approx(
        float(unrolled(x, y)), abs=1e-9
    )


def test_gradient_is_the_closed_form_of_the_appendix():
    # Eq. app_sinkhorn_representation_gradients
    x, y = points(5, 3), points(4, 3, seed=1)
    cross = solve(squared_distances(x, y), 0.5, 500).plan
    own = solve(squared_distances(x, x), 0.5, 500, symmetric=True).plan
    expected = 2 * (cross[..., None] * (x[:, None] - y)).sum(1)
    expected -= 2 * (own[..., None] * (x[:, None] - x)).sum(1)
    torch.testing.assert_close(grad(sinkhorn_divergence)(x, y, 0.5, 500), expected)


def test_potentials_are_fixed_points_and_the_plan_has_its_marginals():
    cost = torch.rand(3, 4, 6, generator=torch.Generator().manual_seed(0)).double()
    to_rows, to_columns = (-cost / 0.2 - math.log(side) for side in (6, 4))
    phi, psi = negative_potentials(to_rows, to_columns, 500, symmetric=False)
    torch.testing.assert_close(phi, (to_rows - psi[:, None]).logsumexp(-1))
    plan = solve(cost, 0.2, 500).plan
    torch.testing.assert_close(plan.sum(-1), torch.full((3, 4), 1 / 4).double())
    torch.testing.assert_close(plan.sum(-2), torch.full((3, 6), 1 / 6).double())


def test_value_is_a_lower_bound_that_rises_to_the_optimum():
    cost = 3 * torch.rand(8, 5, 5, generator=torch.Generator().manual_seed(0)).double()
    symmetric = (cost + cost.mT) / 2
    for matrix, is_symmetric in ((cost, False), (symmetric, True)):
        counts = (1, 3, 10, 100, 3000)
        values = [transport_cost(matrix, 0.1, count, is_symmetric) for count in counts]
        for lower, higher in pairwise(values):
            assert (higher >= lower - 1e-9).all()
    values = [transport_cost(symmetric, 1.0, 500, is_symmetric) for is_symmetric in (False, True)]
    torch.testing.assert_close(*values)


def test_points_without_mass_change_nothing():
    """Measures of three and five points in one batch, as of each without what pads it."""
    x, y = points(2, 5, 2), points(2, 4, 2, seed=1)
    sizes = torch.tensor([[3], [5]])
    x_mass = torch.where(torch.arange(5) < sizes, -sizes.double().log(), -torch.inf)
    y_mass = torch.full((2, 4), -math.log(4), dtype=x.dtype)
    cross = padded_transport(squared_distances(x, y), x_mass, y_mass, 0.5, 200)
    own = padded_transport(squared_distances(x, x), x_mass, x_mass, 0.5, 200, symmetric=True)
    for b, size in enumerate(sizes.flatten()):
        present = x[b, :size]
        expected = transport_cost(squared_distances(present, y[b]), 0.5, 200)
        torch.testing.assert_close(cross[b], expected)
        expected = transport_cost(squared_distances(present, present), 0.5, 200, symmetric=True)
        torch.testing.assert_close(own[b], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_points_do_not_overflow(dtype):
    x, y = points(2, 4, 3, dtype=dtype) * 50, points(2, 5, 3, seed=1, dtype=dtype) * 50 + 300
    value = sinkhorn_divergence(x, y, 0.01)
    slopes = grad(lambda x: sinkhorn_divergence(x, y, 0.01).sum())(x)
    assert torch.isfinite(value).all() and torch.isfinite(slopes).all()


def test_functions_work_under_vmap_and_grad():
    x, y = points(5, 4, 3), points(5, 6, 3, seed=1)
    mapped = vmap(grad(lambda x, y: sinkhorn_divergence(x, y, 0.3)))(x, y)
    looped = [grad(sinkhorn_divergence)(a, b, 0.3) for a, b in zip(x, y, strict=True)]
    torch.testing.assert_close(mapped, torch.stack(looped))
    leaf = x.clone().requires_grad_()
    sinkhorn_divergence(leaf, y, 0.3).sum().backward()
    torch.testing.assert_close(leaf.grad, mapped)


@pytest.mark.gpu
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("n, m", [(4, 4), (1, 1), (3, 7), (16, 16), (33, 20), (64, 64), (64, 5)])
def test_fused_kernel_equals_plain_torch(n, m, symmetric):
    from brio_core.kernels.sinkhorn import Sinkhorn

    if symmetric and n != m:
        pytest.skip("a symmetric cost is square")
    cost = torch.rand(3, 91, n, m, generator=torch.Generator().manual_seed(0)) * 2
    cost = (cost + cost.mT) / 2 if symmetric else cost
    expected = solve_plain(cost.double(), 0.1, 50, symmetric)
    result = Sinkhorn.apply(cost.cuda(), 0.1, 50, symmetric)
    for a, b in zip(result, expected, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, atol=2e-6, rtol=1e-5)
    for in_dim in (0, 1):
        mapped = vmap(lambda c: Sinkhorn.apply(c, 0.1, 50, symmetric), in_dim, in_dim)
        again = mapped(cost.cuda())
        assert all(torch.equal(a, b) for a, b in zip(result, again, strict=True))


@pytest.mark.gpu
def test_divergence_on_cuda_equals_the_cpu_and_can_be_captured():
    x, y = points(20, 34, 4, 8, dtype=torch.float32), points(20, 34, 4, 8, dtype=torch.float32) / 2
    function = vmap(grad(lambda x, y: sinkhorn_divergence(x, y, 0.1).sum()))
    expected = function(x.double(), y.double()).float()
    on_device = (x.cuda(), y.cuda())
    torch.testing.assert_close(function(*on_device).cpu(), expected, atol=1e-4, rtol=1e-3)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = function(*on_device)
    graph.replay()
    torch.testing.assert_close(captured.cpu(), expected, atol=1e-4, rtol=1e-3)
