"""CORAL and IRM: what their penalties on sites see, and what they do not."""

from dataclasses import replace
from itertools import combinations

import pytest
import torch
from synthetic import make_problem, settings_of
from torch.nn import functional

from brio_core.methods.coral import Coral, coral_penalty, site_moments
from brio_core.methods.gcn import Gcn
from brio_core.methods.interface import TRAIN, WARM_UP
from brio_core.methods.irm import Irm, dummy_gradients, irm_penalty
from brio_core.methods.layers.environments import (
    mean_site_risk,
    membership,
)
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


TWO_SITES = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])
LABEL = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 0])
MEMBERS = membership(TWO_SITES, 2, torch.float64)


@pytest.fixture
def logits():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(TWO_SITES), generator=generator, dtype=torch.float64)


def fit(**options):
    problem, _ = make_problem("irm", folds=slice(0, 2), variant="same", **options)
    return GradientFit(problem, problem.data.folds, memory_budget=1 << 30)


def trained(run):
    run.run(lambda _: None, "test")
    return run


def test_penalty_is_the_squared_gradient_of_a_dummy_classifier(logits):
    squares = []
    for site in (0, 1):
        rows = site == TWO_SITES
        dummy = torch.ones((), dtype=torch.float64, requires_grad=True)
        risk = functional.binary_cross_entropy_with_logits(
            dummy * logits[rows], LABEL[rows].double()
        )
        squares.append(torch.autograd.grad(risk, dummy)[0].square())
        closed = ((logits[rows].sigmoid() - LABEL[rows]) * logits[rows]).mean()
        torch.testing.assert_close(squares[-1], closed.square())
    torch.testing.assert_close(irm_penalty(logits, LABEL, MEMBERS), torch.stack(squares).mean())


def test_penalty_is_zero_for_zero_logits_and_for_the_share_of_a_class():
    assert irm_penalty(torch.zeros(len(TWO_SITES)), LABEL, MEMBERS.float()) == 0
    share = torch.tensor([0.5, 0.2], dtype=torch.float64)[TWO_SITES]
    assert irm_penalty(share.logit(), LABEL, MEMBERS) < 1e-20
    assert irm_penalty((share + 0.1).logit(), LABEL, MEMBERS) > 1e-4


def test_without_weight_it_is_the_mean_risk_over_sites():
    class SiteRisk(Irm):
        """The same network under nothing but the per-site averaged risk."""

        def loss(self, batch, phase):
            represented = self._encode(batch.features, batch.key, batch.site >= 0)
            logits = self.head(represented).squeeze(-1)
            members = membership(batch.site, self.n_sites)
            return mean_site_risk(logits, batch.label, members), {}

    problem, _ = make_problem("irm", folds=slice(0, 2), variant="same", penalty_weight=0.0)
    problem = replace(problem, trial=replace(problem.trial, method=SiteRisk))
    plain = trained(GradientFit(problem, problem.data.folds, memory_budget=1 << 30))
    ours = trained(fit(penalty_weight=0.0))
    for name, value in plain.stack.state().items():
        assert torch.equal(value, ours.stack.state()[name])
    assert not Irm.restarts(problem.trial.hyperparameters, 3)


def test_one_logit_and_two_logits_agree(logits):
    generator = torch.Generator().manual_seed(1)
    both = torch.randn(len(TWO_SITES), 2, generator=generator, dtype=torch.float64)
    margin = both[:, 1] - both[:, 0]
    squares = []
    for site in (0, 1):
        dummy = torch.ones((), dtype=torch.float64, requires_grad=True)
        risk = functional.cross_entropy(dummy * both[site == TWO_SITES], LABEL[site == TWO_SITES])
        squares.append(torch.autograd.grad(risk, dummy)[0].square())
    torch.testing.assert_close(irm_penalty(margin, LABEL, MEMBERS), torch.stack(squares).mean())


def test_the_dummy_classifier_is_never_trained():
    """It has no place among the parameters, hence none in the optimiser, and so stays 1."""
    run = trained(fit())
    plain = Gcn(run.hyperparameters, run.problem.data.cohort.fc.shape[-1], 3)
    names = [name for name, _ in plain.named_parameters()]
    assert list(run.stack.parameters) == names
    assert list(run.optimiser.moments) == names


def test_the_weight_switches_after_warm_up():
    settings = settings_of("irm", penalty_weight=100.0, warmup_share=0.34, first_epoch=1)
    assert [Irm.phase(settings, epoch) for epoch in (1, 2, 3, 4)] == [WARM_UP] * 2 + [TRAIN] * 2
    assert [Irm.restarts(settings, epoch) for epoch in (1, 2, 3, 4)] == [False, False, True, False]
    assert settings.first_epoch == 3


@pytest.mark.parametrize("weight", [0.01, 1.0])
def test_a_small_weight_never_switches(weight):
    settings = settings_of("irm", penalty_weight=weight, first_epoch=1)
    assert {Irm.phase(settings, epoch) for epoch in range(1, 7)} == {TRAIN}
    assert not any(Irm.restarts(settings, epoch) for epoch in range(1, 7))
    assert settings.first_epoch == 1


def test_the_loss_is_divided_by_a_weight_above_one():
    run = trained(fit(penalty_weight=100.0, warmup_share=0.34))
    for epoch, row in enumerate(run.history, 1):
        weight = 1.0 if epoch <= 2 else 100.0
        for loss, risk, penalty in zip(row["loss"], row["risk"], row["penalty"]):
            assert loss == pytest.approx((risk + weight * penalty) / weight, rel=1e-5)


def test_the_optimiser_forgets_at_the_switch():
    steps = {}

    def note(run):
        (first, *_) = run.optimiser.moments.values()
        steps[run.epoch] = int(first["steps"])

    run = fit(penalty_weight=100.0, warmup_share=0.34)
    run.run(note, "test")
    per_epoch = run.batches.per_epoch
    assert [steps[epoch] // per_epoch for epoch in range(1, 7)] == [1, 2, 1, 2, 3, 4]


@pytest.mark.parametrize("estimator", ["squared", "split_halves"])
def test_an_interruption_around_the_switch_changes_nothing(estimator):
    class Killed(Exception):
        pass

    options = {"penalty_weight": 100.0, "warmup_share": 0.34, "estimator": estimator}
    undisturbed = trained(fit(**options))
    for last in (1, 2, 3):
        kept = {}

        def kill(run, last=last, kept=kept):
            if run.epoch == last:
                kept.update(run.snapshot())
                raise Killed

        with pytest.raises(Killed):
            fit(**options).run(kill, "test")
        resumed = fit(**options)
        resumed.restore(kept)
        trained(resumed)
        for name, value in undisturbed.stack.state().items():
            assert torch.equal(value, resumed.stack.state()[name])


def test_dummy_gradients_are_zero_at_a_site_that_is_not_there(logits):
    members = membership(torch.where(TWO_SITES == 0, 0, -1), 2, torch.float64)
    assert dummy_gradients(logits, LABEL, members)[1] == 0
