"""The balanced assignment, and the alignment loss against the paper's sum over pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, grad_and_value, vmap

from brio_core.methods.brio.qualification import alignment_loss, pair_costs, qualify
from brio_core.methods.layers.transport import (
    balanced_assignment,
    marginal_error,
    sinkhorn_divergence,
    solve,
)

SITES, POINTS, FACTORS, DIMENSION = 4, 3, 3, 5


def unit_factors(seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (SITES, 2, POINTS, FACTORS, DIMENSION)
    factors = torch.randn(shape, generator=generator, dtype=torch.float64)
    return torch.nn.functional.normalize(factors, dim=-1)


def qualification(seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    site, label = torch.arange(40) % SITES, torch.arange(40) // SITES % 2
    contributions = torch.randn(40, 6, FACTORS, generator=generator, dtype=torch.float64)
    contributions[:, 0] += label[:, None]
    classifier = torch.randn(FACTORS, DIMENSION, generator=generator, dtype=torch.float64)
    return qualify(contributions, site, label, classifier)


def slow_alignment(factors, qualified, epsilon, iterations):
    """Eq. qualification_guided_alignment with explicit weighted representations."""
    total = 0
    for pair, (e, f) in enumerate(qualified.pairs.tolist()):
        for c in (0, 1):
            root = (qualified.weights[pair, c] / 2).sqrt()[:, None]
            x, y = ((root * factors[site, c]).flatten(1) for site in (e, f))
            divergence = sinkhorn_divergence(x, y, epsilon, iterations)
            total = total + 0.5 * qualified.strength[pair, c] * divergence
    return 2 * total / (SITES * (SITES - 1))


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_ordered_pairs_equal_the_paper(epsilon):
    factors, qualified = unit_factors(), qualification()
    matrices = (qualified.weight_matrix, qualified.strength_matrix)
    # The smaller epsilon is, the later iterations have converged.
    iterations = int(100 / epsilon)
    slopes, value = grad_and_value(alignment_loss)(factors, *matrices, epsilon, iterations)
    slow = grad_and_value(slow_alignment)(factors, qualified, epsilon, iterations)
    torch.testing.assert_close(value, slow[1])

    def tangential(gradient):
        # The two costs agree on unit vectors only, so compare along the sphere.
        return gradient - (gradient * factors).sum(-1, keepdim=True) * factors

    torch.testing.assert_close(tangential(slopes), tangential(slow[0]))


def test_costs_are_weighted_cosine_dissimilarities():
    factors, qualified = unit_factors(), qualification()
    cross, within = pair_costs(factors, qualified.weight_matrix)
    assert cross.shape == within.shape == (SITES, SITES, 2, POINTS, POINTS)
    for e in range(SITES):
        for f in range(SITES):
            for c in (0, 1):
                w = qualified.weight_matrix[e, f, c]
                for i in range(POINTS):
                    for h in range(POINTS):
                        cosine = (factors[e, c, i] * factors[f, c, h]).sum(-1)
                        own = (factors[e, c, i] * factors[e, c, h]).sum(-1)
                        torch.testing.assert_close(cross[e, f, c, i, h], (w * (1 - cosine)).sum())
                        torch.testing.assert_close(within[e, f, c, i, h], (w * (1 - own)).sum())
    assert cross.min() > -1e-12 and cross.max() <= 2


def test_gradient_reaching_a_factor_is_its_qualification_times_the_residual():
    # Eq. app_sinkhorn_factor_gradient, along the sphere, for one pair and class.
    factors, qualified = unit_factors(), qualification()
    e, f, c, pair = 0, 2, 1, 1
    assert qualified.pairs[pair].tolist() == [e, f]
    only = torch.zeros_like(qualified.strength_matrix)
    only[e, f, c] = only[f, e, c] = qualified.strength[pair, c]
    slopes = grad(lambda r: alignment_loss(r, qualified.weight_matrix, only, 0.5, 1000))(factors)
    slopes = slopes[e, c] * SITES * (SITES - 1)  # undo the average over pairs and classes

    cross, within = pair_costs(factors, qualified.weight_matrix)
    plan = solve(cross[e, f, c], 0.5, 1000).plan
    own_plan = solve(within[e, f, c], 0.5, 1000, symmetric=True).plan
    x, y = factors[e, c], factors[f, c]
    alpha = qualified.relevance * qualified.pair_support[pair, c]
    for i in range(POINTS):
        for j in range(FACTORS):
            residual = sum(plan[i, h] * (x[i, j] - y[h, j]) for h in range(POINTS))
            residual = residual - sum(own_plan[i, h] * (x[i, j] - x[h, j]) for h in range(POINTS))
            expected = alpha[j] * residual
            expected = expected - (expected @ x[i, j]) * x[i, j]
            slope = slopes[i, j] - (slopes[i, j] @ x[i, j]) * x[i, j]
            torch.testing.assert_close(slope, expected)


def test_equal_distributions_and_zero_strength_cost_nothing():
    factors, qualified = unit_factors(), qualification()
    same = factors[:1].expand(SITES, -1, -1, -1, -1)
    loss = alignment_loss(same, qualified.weight_matrix, qualified.strength_matrix, 0.1, 500)
    assert abs(loss) < 1e-8
    nothing = torch.zeros_like(qualified.strength_matrix)
    slopes = grad(lambda r: alignment_loss(r, qualified.weight_matrix, nothing))(factors)
    assert (slopes == 0).all()


def test_order_of_sites_and_subjects_does_not_matter():
    factors, qualified = unit_factors(), qualification()
    matrices = (qualified.weight_matrix, qualified.strength_matrix)
    expected = alignment_loss(factors, *matrices, 0.1, 500)
    order = torch.tensor([2, 0, 3, 1])
    permuted = (matrix[order][:, order] for matrix in matrices)
    torch.testing.assert_close(alignment_loss(factors[order], *permuted, 0.1, 500), expected)
    shuffled = factors[:, :, [2, 0, 1]]
    torch.testing.assert_close(alignment_loss(shuffled, *matrices, 0.1, 500), expected)


def test_folds_together_equal_folds_alone():
    folds = [(unit_factors(seed), qualification(seed)) for seed in range(3)]
    factors = torch.stack([factors for factors, _ in folds])
    weights = torch.stack([one.weight_matrix for _, one in folds])
    strengths = torch.stack([one.strength_matrix for _, one in folds])
    slopes = vmap(grad(alignment_loss))(factors, weights, strengths)
    batched = alignment_loss(factors, weights, strengths)
    for number in range(3):
        arguments = (factors[number], weights[number], strengths[number])
        torch.testing.assert_close(batched[number], alignment_loss(*arguments))
        torch.testing.assert_close(slopes[number], grad(alignment_loss)(*arguments))
    torch.testing.assert_close(vmap(alignment_loss)(factors, weights, strengths), batched)


def test_float32_is_enough():
    factors, qualified = unit_factors(), qualification()
    arguments = (factors, qualified.weight_matrix, qualified.strength_matrix)
    single = alignment_loss(*(part.float() for part in arguments))
    assert single.dtype == torch.float32
    assert float(single) == pytest.approx(float(alignment_loss(*arguments)), rel=1e-4)


def points(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def slow_assignment(similarity: np.ndarray, iterations: int) -> np.ndarray:
    n_rows, n_columns = similarity.shape
    plan = np.exp(similarity)
    for _ in range(iterations):
        plan /= plan.sum(1, keepdims=True) * n_rows
        plan /= plan.sum(0, keepdims=True) * n_columns
    return plan


@pytest.mark.parametrize("spread", [0.1, 1.0, 5.0])
def test_assignment_equals_the_slow_reading(spread):
    similarity = points(3, 4, 20) * spread
    expected = [slow_assignment(one.numpy(), 60) for one in similarity]
    np.testing.assert_allclose(balanced_assignment(similarity), expected, rtol=1e-8)


@pytest.mark.parametrize("n_rois", [24, 200])
def test_assignment_marginals_at_small_logits(n_rois):
    plan = balanced_assignment(0.5 * points(4, n_rois, dtype=torch.float32))
    assert marginal_error(plan) < 1e-6 and (plan > 0).all()
    assert float((plan.sum(-1) - 1 / 4).abs().max()) < 1e-6
    assert float((plan.sum(-2) - 1 / n_rois).abs().max()) < 1e-6


def test_marginal_error_tells_what_iterations_leave_at_large_logits():
    similarity = 20 * points(50, 4, 200)
    errors = [marginal_error(balanced_assignment(similarity, n)).mean() for n in (5, 60, 2000)]
    assert errors[0] > errors[1] > 1e-4 > errors[2]
    exact = torch.full((4, 5), 1 / 20)
    assert marginal_error(exact) < 1e-6
    exact[1, 2] += 0.01
    # The row has mass 1/4, the column 1/5.
    assert float(marginal_error(exact)) == pytest.approx(0.05, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 9), st.integers(0, 10_000))
def test_permuting_rois_permutes_the_assignment(n_factors, n_rois, seed):
    similarity = points(n_factors, n_rois, seed=seed)
    order = torch.randperm(n_rois, generator=torch.Generator().manual_seed(seed))
    plan = balanced_assignment(similarity)
    torch.testing.assert_close(balanced_assignment(similarity[:, order]), plan[:, order])


def test_assignment_is_differentiable_under_vmap():
    similarity = points(3, 4, 10)
    target = points(4, 10, seed=1)

    def loss(similarity):
        return (balanced_assignment(similarity) * target).sum()

    mapped = vmap(grad(loss))(similarity)
    assert torch.autograd.gradcheck(loss, similarity[0].clone().requires_grad_())
    torch.testing.assert_close(mapped[1], grad(loss)(similarity[1]))
