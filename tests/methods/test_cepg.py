"""CEPG, reimplemented: the split, the guides, and what each loss trains."""

import inspect

import pytest
import torch
import yaml
from synthetic import METHODS, make_problem, settings_of, trained_by, untrained
from torch.func import grad
from torch.nn import functional

from brio_core.methods.cepg import (
    Cepg,
    capped,
    class_contrasts,
    contrast_disagreement,
    reversed_gradient,
)
from brio_core.methods.interface import TRAIN, WARM_UP, Batch
from brio_core.methods.layers.environments import membership
from brio_core.training.gradient import GradientFit

ROIS, SITES = 12, 3
SITE = torch.arange(SITES).repeat_interleave(8)
LABEL = torch.arange(2).repeat_interleave(4).repeat(SITES)


def make(**overrides):
    module, features = untrained("cepg", len(SITE), ROIS, **overrides)
    return module, Batch(features, LABEL, SITE, torch.tensor(3))


def test_shared_and_environment_parts_add_up():
    module, batch = make()
    represented = module._encode(batch.features, None)
    shared, rest = module.split(represented)
    torch.testing.assert_close(shared + rest, represented, rtol=0, atol=1e-6)
    gate = module.gate(represented).sigmoid()
    assert (gate > 0).all() and (gate < 1).all()


def test_disagreement_is_about_contrasts_alone():
    members = membership(SITE, SITES)
    draw = torch.Generator().manual_seed(0)

    def disagreement(features):
        return contrast_disagreement(class_contrasts(features, LABEL, members), False)

    one_site = torch.randn(8, 5, generator=draw)
    same = one_site.repeat(SITES, 1)
    torch.testing.assert_close(disagreement(same), torch.tensor(0.0), atol=1e-6, rtol=0)
    flipped = same.clone()
    flipped[:8] = -flipped[:8]
    assert disagreement(flipped) > 0.1
    generic = torch.randn(len(SITE), 5, generator=draw)
    torch.testing.assert_close(disagreement(7 * generic), disagreement(generic), rtol=1e-4, atol=0)
    shift = torch.randn(SITES, 5, generator=draw)[SITE]
    torch.testing.assert_close(disagreement(generic + shift), disagreement(generic))


def test_predictions_have_no_site():
    module, batch = make()
    assert list(inspect.signature(module.logits).parameters) == ["features"]
    module.eval()
    before = module.logits(batch.features)
    module.loss(batch._replace(site=batch.site.flip(0)), TRAIN)
    assert torch.equal(before, module.logits(batch.features))


def test_what_each_loss_trains():
    module, batch = make()
    shared, _ = module.split(module._encode(batch.features, batch.key, batch.site >= 0))
    members = membership(batch.site, SITES)
    backbone = {"convolutions", "norms", "gate"}
    _, logs = module.loss(batch, TRAIN)
    assert trained_by(module, logs["environment"]) == backbone | {"environment_head"}
    risks = module.site_risks(module.head(shared), LABEL, members)
    assert trained_by(module, module.shared(shared, risks, LABEL, members)[0]) == backbone
    assert trained_by(module, logs["risk"]) == backbone | {"head"}


def test_without_weights_the_update_is_erm_with_mean_site_risk():
    module, batch = make(lambda_guide=0.0, lambda_environment=0.0)
    found = torch.autograd.grad(module.loss(batch, TRAIN)[0], list(module.parameters()))
    shared, _ = module.split(module._encode(batch.features, batch.key, batch.site >= 0))
    risk = functional.binary_cross_entropy_with_logits(
        module.head(shared).squeeze(-1), LABEL.float(), reduction="none"
    )
    mean = torch.stack([risk[site == SITE].mean() for site in range(SITES)]).mean()
    wanted = torch.autograd.grad(mean, list(module.parameters()))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_the_guide_joins_after_a_fifth_of_the_epochs_and_checkpoints_with_it():
    settings = settings_of("cepg", epochs=200, first_epoch=1)
    assert [Cepg.phase(settings, epoch) for epoch in (1, 40, 41)] == [WARM_UP, WARM_UP, TRAIN]
    assert settings.first_epoch == 41
    module, batch = make()
    assert module.loss(batch, WARM_UP)[1]["guide"] == 0 < module.loss(batch, TRAIN)[1]["guide"]


def test_gap_freezes_the_site_head_in_the_penalty_and_trains_it_on_constants():
    module, batch = make(guide="gap")
    shared, _ = module.split(module._encode(batch.features, batch.key, batch.site >= 0))
    members = membership(SITE, SITES)
    # A head that knows the sites well, so that every gap is open.
    risks = module.site_risks(module.head(shared), LABEL, members) + 10
    penalty, own = module.gap(shared, risks, LABEL, members)
    assert penalty > 0
    assert "site_head" not in trained_by(module, penalty)
    assert {"convolutions", "gate"} <= trained_by(module, penalty)
    assert trained_by(module, own) == {"site_head"}


def test_grl_turns_the_encoder_against_the_adversary():
    module, _ = make(guide="grl", lambda_environment=0.0)
    members = membership(SITE, SITES)
    shared = torch.randn(len(SITE), module.hyperparameters.hidden, requires_grad=True)
    module.progress.fill_(0.3)
    told, _ = module.grl(shared, None, LABEL, members)
    (reversed_slope,) = torch.autograd.grad(told, shared)
    honest = functional.cross_entropy(module.adversary(shared), SITE)
    torch.testing.assert_close(told, honest)
    (slope,) = torch.autograd.grad(honest, shared)
    strength = 2 / (1 + torch.exp(torch.tensor(-3.0))) - 1
    torch.testing.assert_close(reversed_slope, -strength * slope)


@pytest.mark.parametrize("guide", ["gap", "grl"])
def test_the_other_guides_train_all_their_parameters(guide):
    problem, _ = make_problem("cepg", guide=guide)
    run = GradientFit(problem, problem.data.folds[:2], memory_budget=1 << 30)
    before = {key: value.clone() for key, value in run.stack.parameters.items()}
    run.run(lambda _: None, "test")
    assert [k for k, v in run.stack.parameters.items() if torch.equal(v, before[k])] == []
    if guide == "grl":
        assert 0.9 < run.stack.buffers["progress"][0] < 1


def test_the_row_says_whose_reading_it_is():
    label = yaml.safe_load((METHODS / "cepg.yaml").read_text())["label"]
    assert label == "CEPG (reimplemented)"


SITE_OF_ROW = torch.tensor([0] * 6 + [1] * 5 + [2] * 3 + [-1] * 2)
LABEL_OF_ROW = torch.tensor([0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1])
FEATURES = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
MEMBERS = membership(SITE_OF_ROW, 4)


def test_contrasts_and_their_noise_equal_a_loop():
    found = class_contrasts(FEATURES, LABEL_OF_ROW, MEMBERS)
    assert found.usable.tolist() == [1, 1, 0, 0]
    for site in (0, 1):
        one, zero = (FEATURES[(site == SITE_OF_ROW) & (side == LABEL_OF_ROW)] for side in (1, 0))
        torch.testing.assert_close(found.values[site], one.mean(0) - zero.mean(0))
        noise = one.var(0) / len(one) + zero.var(0) / len(zero)
        torch.testing.assert_close(found.noise[site], noise)


def test_disagreement_equals_its_formula_over_usable_sites():
    contrasts = class_contrasts(FEATURES, LABEL_OF_ROW, MEMBERS)
    used = contrasts.values[:2]
    wanted = used.var(0, correction=0).sum() / used.mean(0).square().sum()
    torch.testing.assert_close(contrast_disagreement(contrasts, False), wanted, rtol=1e-4, atol=0)
    assert contrast_disagreement(contrasts, True) < wanted


def test_rows_of_no_site_and_sites_of_one_class_do_not_count():
    def disagreement(features):
        return contrast_disagreement(class_contrasts(features, LABEL_OF_ROW, MEMBERS), False)

    changed = FEATURES.clone()
    changed[11:] = 100
    torch.testing.assert_close(disagreement(changed), disagreement(FEATURES))
    assert (grad(disagreement)(FEATURES)[11:] == 0).all()


def test_one_usable_site_gives_zero():
    alone = MEMBERS * torch.tensor([1.0, 0, 1, 1])
    assert contrast_disagreement(class_contrasts(FEATURES, LABEL_OF_ROW, alone), False) == 0


def test_the_cap_keeps_a_gradient():
    assert capped(torch.tensor(3.0), 10.0) == 3
    assert capped(torch.tensor(40.0), 10.0) == 10
    assert grad(lambda x: capped(x, 10.0))(torch.tensor(40.0)) == 0.25


def test_reversed_gradient():
    values, strength = torch.tensor([1.0, -2.0]), torch.tensor(0.5)
    assert torch.equal(reversed_gradient(values, strength), values)
    slope = grad(lambda x: (reversed_gradient(x, strength) * torch.tensor([3.0, 4.0])).sum())
    assert torch.equal(slope(values), torch.tensor([-1.5, -2.0]))
