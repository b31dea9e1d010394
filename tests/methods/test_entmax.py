"""alpha-entmax against its definition and its limits."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core.methods.disco.entmax import entmax

SCORES = torch.randn(50, 8, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("alpha", [1.0, 1.1, 1.38, 1.5, 2.0])
def test_rows_are_distributions(alpha):
    weights = entmax(SCORES, alpha)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(50))


def test_well_separated_scores_have_exact_zeros():
    weights = entmax(torch.tensor([9.0, 8.5, 0.0, -3.0]), 1.38)
    assert (weights[:2] > 0).all() and (weights[2:] == 0).all()


def test_alpha_near_one_is_softmax():
    torch.testing.assert_close(
        entmax(SCORES.double(), 1.0001), SCORES.double().softmax(-1), rtol=0, atol=1e-3
    )


def test_alpha_two_is_sparsemax():
    """The Euclidean projection onto the simplex, by its closed form on sorted scores."""
    ordered, _ = SCORES.sort(-1, descending=True)
    sums = ordered.cumsum(-1) - 1
    steps = torch.arange(1, 9)
    support = (ordered * steps > sums).sum(-1, keepdim=True)
    threshold = sums.gather(-1, support - 1) / support
    torch.testing.assert_close(entmax(SCORES, 2.0), (SCORES - threshold).clamp_min(0))


def test_equal_scores_share_equally():
    torch.testing.assert_close(entmax(torch.full((3, 8), 5.0), 1.38), torch.full((3, 8), 1 / 8))


def test_gradient_equals_finite_differences():
    scores = SCORES[:3, :4].double().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: entmax(x, 1.38), (scores,), atol=1e-5)


def test_maps_over_folds():
    above = torch.randn_like(SCORES)
    loss = lambda scores, above: (entmax(scores, 1.38) * above).sum()  # noqa: E731
    together = vmap(grad(loss))(SCORES.view(5, 10, 8), above.view(5, 10, 8))
    torch.testing.assert_close(together.view(50, 8), grad(loss)(SCORES, above))
