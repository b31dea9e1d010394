"""Class contrasts per site against loops over sites."""

import torch
from torch.func import grad

from brio_core.methods.cepg.contrasts import (
    capped,
    class_contrasts,
    contrast_disagreement,
    reversed_gradient,
)
from brio_core.methods.layers.environments import membership

SITE = torch.tensor([0] * 6 + [1] * 5 + [2] * 3 + [-1] * 2)
LABEL = torch.tensor([0, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1])
FEATURES = torch.randn(16, 4, generator=torch.Generator().manual_seed(0))
MEMBERS = membership(SITE, 4)


def test_contrasts_and_their_noise_equal_a_loop():
    found = class_contrasts(FEATURES, LABEL, MEMBERS)
    assert found.usable.tolist() == [1, 1, 0, 0]
    for site in (0, 1):
        one, zero = (FEATURES[(site == SITE) & (side == LABEL)] for side in (1, 0))
        torch.testing.assert_close(found.values[site], one.mean(0) - zero.mean(0))
        noise = one.var(0) / len(one) + zero.var(0) / len(zero)
        torch.testing.assert_close(found.noise[site], noise)


def test_disagreement_equals_its_formula_over_usable_sites():
    contrasts = class_contrasts(FEATURES, LABEL, MEMBERS)
    used = contrasts.values[:2]
    wanted = used.var(0, correction=0).sum() / used.mean(0).square().sum()
    torch.testing.assert_close(contrast_disagreement(contrasts, False), wanted, rtol=1e-4, atol=0)
    assert contrast_disagreement(contrasts, True) < wanted


def test_rows_of_no_site_and_sites_of_one_class_do_not_count():
    def disagreement(features):
        return contrast_disagreement(class_contrasts(features, LABEL, MEMBERS), False)

    changed = FEATURES.clone()
    changed[11:] = 100
    torch.testing.assert_close(disagreement(changed), disagreement(FEATURES))
    assert (grad(disagreement)(FEATURES)[11:] == 0).all()


def test_one_usable_site_gives_zero():
    alone = MEMBERS * torch.tensor([1.0, 0, 1, 1])
    assert contrast_disagreement(class_contrasts(FEATURES, LABEL, alone), False) == 0


def test_the_cap_keeps_a_gradient():
    assert capped(torch.tensor(3.0), 10.0) == 3
    assert capped(torch.tensor(40.0), 10.0) == 10
    assert grad(lambda x: capped(x, 10.0))(torch.tensor(40.0)) == 0.25


def test_reversed_gradient():
    values, strength = torch.tensor([1.0, -2.0]), torch.tensor(0.5)
    assert torch.equal(reversed_gradient(values, strength), values)
    slope = grad(lambda x: (reversed_gradient(x, strength) * torch.tensor([3.0, 4.0])).sum())
    assert torch.equal(slope(values), torch.tensor([-1.5, -2.0]))
