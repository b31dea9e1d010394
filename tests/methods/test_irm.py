"""IRM: the penalty, its closed form, and the switch of its weight."""

from dataclasses import replace

import pytest
import torch
from synthetic import make_problem, settings_of
from torch.nn import functional

from brio_core.methods.gcn import Gcn
from brio_core.methods.interface import TRAIN, WARM_UP
from brio_core.methods.irm import Irm, dummy_gradients, irm_penalty
from brio_core.methods.layers.environments import (
    mean_site_risk,
    membership,
)
from brio_core.training.gradient import GradientFit

SITE = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1])
LABEL = torch.tensor([0, 1, 1, 0, 1, 0, 0, 0, 0])
MEMBERS = membership(SITE, 2, torch.float64)


@pytest.fixture
def logits():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(len(SITE), generator=generator, dtype=torch.float64)


def fit(**options):
    problem, _ = make_problem("irm", folds=slice(0, 2), variant="same", **options)
    return GradientFit(problem, problem.data.folds, memory_budget=1 << 30)


def trained(run):
    run.run(lambda _: None, "test")
    return run


def test_penalty_is_the_squared_gradient_of_a_dummy_classifier(logits):
    squares = []
    for site in (0, 1):
        rows = site == SITE
        dummy = torch.ones((), dtype=torch.float64, requires_grad=True)
        risk = functional.binary_cross_entropy_with_logits(
            dummy * logits[rows], LABEL[rows].double()
        )
        squares.append(torch.autograd.grad(risk, dummy)[0].square())
        closed = ((logits[rows].sigmoid() - LABEL[rows]) * logits[rows]).mean()
        torch.testing.assert_close(squares[-1], closed.square())
    torch.testing.assert_close(irm_penalty(logits, LABEL, MEMBERS), torch.stack(squares).mean())


def test_penalty_is_zero_for_zero_logits_and_for_the_share_of_a_class():
    assert irm_penalty(torch.zeros(len(SITE)), LABEL, MEMBERS.float()) == 0
    share = torch.tensor([0.5, 0.2], dtype=torch.float64)[SITE]
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
    both = torch.randn(len(SITE), 2, generator=generator, dtype=torch.float64)
    margin = both[:, 1] - both[:, 0]
    squares = []
    for site in (0, 1):
        dummy = torch.ones((), dtype=torch.float64, requires_grad=True)
        risk = functional.cross_entropy(dummy * both[site == SITE], LABEL[site == SITE])
        squares.append(torch.autograd.grad(risk, dummy)[0].square())
    torch.testing.assert_close(irm_penalty(margin, LABEL, MEMBERS), torch.stack(squares).mean())


def test_the_dummy_classifier_is_never_trained():
    """It has no place among the parameters, hence none in the optimiser, and so stays 1."""
    run = trained(fit())
    plain = Gcn(run.hyperparameters, run.problem.data.cohort.fc.shape[-1], 3)
    names = [name for name, _ in plain.named_parameters()]
    assert list(run.stack.parameters) == names
    assert len(run.optimiser.state) == len(names)


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
        (first, *_) = run.optimiser.state.values()
        steps[run.epoch] = int(first["step"])

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
    members = membership(torch.where(SITE == 0, 0, -1), 2, torch.float64)
    assert dummy_gradients(logits, LABEL, members)[1] == 0
