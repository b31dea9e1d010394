"""CORAL: what the penalty sees, and what it does not."""

from itertools import combinations

import pytest
import torch
from synthetic import make_problem

from brio_core.methods.coral import Coral, coral_penalty, site_moments
from brio_core.methods.gcn import Gcn
from brio_core.methods.layers.environments import membership
from brio_core.training.gradient import GradientFit

WIDTH = 3
SITE = torch.tensor([0] * 6 + [1] * 6 + [2] * 6)


@pytest.fixture
def represented():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(18, WIDTH, generator=generator, dtype=torch.float64)


def penalty(represented, site=SITE, mean_term=False):
    members = membership(site, 3, represented.dtype)
    return coral_penalty(site_moments(represented, members), mean_term)


def test_penalty_is_zero_for_identical_covariances(represented):
    same = represented[:6].repeat(3, 1)
    shifted = same + 5.0 * SITE[:, None]
    assert penalty(same) < 1e-10
    assert penalty(shifted) < 1e-10
    assert penalty(same, mean_term=True) < 1e-10
    assert penalty(shifted, mean_term=True) > 1
    assert penalty(represented) > 1e-3


def test_penalty_ignores_the_order_of_subjects_and_the_names_of_sites(represented):
    order = torch.randperm(18, generator=torch.Generator().manual_seed(1))
    expected = penalty(represented)
    torch.testing.assert_close(penalty(represented[order], SITE[order]), expected)
    renamed = torch.tensor([2, 0, 1])[SITE]
    torch.testing.assert_close(penalty(represented, renamed), expected)
    two = SITE < 2
    exchanged = penalty(represented[two], 1 - SITE[two])
    torch.testing.assert_close(exchanged, penalty(represented[two], SITE[two]))


def test_penalty_grows_with_the_fourth_power_of_scale(represented):
    torch.testing.assert_close(penalty(3 * represented), 81 * penalty(represented))


def test_penalty_matches_torch_cov(represented):
    covariances = [represented[site == SITE].T.cov() for site in range(3)]
    pairs = [(one - other).square().sum() for one, other in combinations(covariances, 2)]
    expected = torch.stack(pairs).mean() / (4 * WIDTH**2)
    torch.testing.assert_close(penalty(represented), expected)


def test_small_sites_are_harmless(represented):
    """Two subjects give a finite gradient; a single one is as if it were not there."""
    chosen = torch.tensor([0, 1, 6, 7, 8, 12])
    represented = represented[chosen].requires_grad_()
    value = penalty(represented, SITE[chosen])
    torch.testing.assert_close(value, penalty(represented[:5], SITE[chosen][:5]))
    value.backward()
    assert torch.isfinite(represented.grad).all()
    assert (represented.grad[:2] != 0).any() and (represented.grad[-1] == 0).all()
    assert penalty(represented[3:], SITE[chosen][3:]) == 0


def test_the_backbone_is_that_of_gcn():
    problem, _ = make_problem("coral")
    module = problem.module(problem.data.folds[0])
    plain = Gcn(problem.trial.hyperparameters, problem.data.cohort.fc.shape[-1], 3)
    assert module.state_dict().keys() == plain.state_dict().keys()
    assert Coral.represent is Gcn.represent and Coral.logits is Gcn.logits


def test_history_tells_when_the_representation_collapses():
    problem, _ = make_problem("coral", folds=slice(0, 1))
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    run.run(lambda _: None, "test")
    for column in ("risk", "penalty", "representation_norm", "covariance_trace"):
        assert run.history[-1][column][0] > 0


def test_a_strong_penalty_makes_it_smaller():
    def last(weight):
        problem, _ = make_problem(
            "coral", folds=slice(0, 1), penalty_weight=weight, epochs=20, dropout=0.0
        )
        run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
        run.run(lambda _: None, "test")
        return run.history[-1]["penalty"][0]

    assert last(1e5) < 0.5 * last(0.0)


@pytest.mark.parametrize("sampler", ["shuffled", "balanced", "sites"])
def test_any_sampler_will_do(sampler):
    # Four subjects per class cannot fill eight places: half of a batch of sites are stand-ins.
    problem, _ = make_problem(
        "coral", folds=slice(0, 1), sampler=sampler, subjects_per_site_class=8
    )
    run = GradientFit(problem, problem.data.folds, memory_budget=1 << 30)
    assert bool(run.batches._present.all()) == (sampler != "sites")
    run.run(lambda _: None, "test")
    assert all(torch.isfinite(value).all() for value in run.stack.state().values())
