"""The balanced assignment: its marginals and its gradient."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.func import grad, vmap

from brio_core.methods.layers.transport import balanced_assignment, marginal_error


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
