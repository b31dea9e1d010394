"""Norms against their definitions and kernels; losses between sites, and rows that do not count."""

from itertools import combinations

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from brio_core.methods.coral import coral_penalty, mean_squared_distance, site_moments
from brio_core.methods.disco.experts import ExpertNorm
from brio_core.methods.irm import dummy_gradients, irm_penalty, irm_penalty_of_halves
from brio_core.methods.layers.environments import mean_site_risk, membership, site_means
from brio_core.methods.layers.norms import MaskedNorm, NodeNorm, norm_relu, residual_norm
from brio_core.system.randomness import dropout

KEY = torch.tensor(9)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_norm_relu_is_norm_then_relu_then_dropout(rate):
    values = draw(2, 7, 4) * 3 + 1
    norm, twin = NodeNorm(4), nn.BatchNorm1d(4)
    wanted = dropout(twin(values.flatten(0, 1)).view_as(values).relu(), rate, KEY, 2)
    torch.testing.assert_close(norm_relu(values, norm, rate, KEY, 2), wanted)
    torch.testing.assert_close(norm.running_var, twin.running_var)
    norm.eval(), twin.eval()
    wanted = twin(values.flatten(0, 1)).view_as(values).relu()
    torch.testing.assert_close(norm_relu(values, norm, rate, None), wanted)


def test_norm_dropout_is_norm_then_dropout():
    values = draw(2, 7, 4) * 3 + 1
    wanted = dropout(nn.BatchNorm1d(4)(values.flatten(0, 1)).view_as(values), 0.3, KEY, 2)
    torch.testing.assert_close(norm_relu(values, NodeNorm(4), 0.3, KEY, 2, relu=False), wanted)


# The widest have several tiles of channels, the last of them not full.
WIDTHS = [6, 64, 70, 300]


@pytest.mark.gpu
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("make", [NodeNorm, MaskedNorm, lambda width: ExpertNorm(3, width)])
@pytest.mark.parametrize("width", WIDTHS)
def test_norm_kernel_equals_its_twin(width, make, relu, rate):
    lead = (3,) if isinstance(make(width), ExpertNorm) else ()
    values, above = draw(2, *lead, 4, 50, width) * 2 + 5, draw(2, *lead, 4, 50, width, seed=1)
    weights = {"weight": draw(2, *lead, width, seed=2), "bias": draw(2, *lead, width, seed=3)}
    # Of a MaskedNorm some rows are absent, not as many in both folds.
    present = draw(2, 4, 50, seed=4) > torch.tensor([0.0, 0.5])[:, None, None]
    results = []
    for device in ("cpu", "cuda"):
        norm = make(width).to(device)

        class Wrapped(nn.Module):
            def __init__(self, norm):
                super().__init__()
                self.norm = norm

            def forward(self, values, key, present):
                if not isinstance(self.norm, MaskedNorm):
                    return norm_relu(values, self.norm, rate, key, 2, relu)
                rows = (values.flatten(0, 1), self.norm, rate, key, 2, relu, present.flatten())
                return norm_relu(*rows).view_as(values) * present[..., None]

        module = Wrapped(norm)
        buffers = {
            name: value.expand(2, *value.shape).clone() for name, value in module.named_buffers()
        }

        def loss(values, weights, buffers, above, key, present, module=module):
            state = ({f"norm.{name}": value for name, value in weights.items()}, buffers)
            out = functional_call(module, state, (values, key, present))
            return (out * above).sum(), out

        moved = {name: value.to(device) for name, value in weights.items()}
        inputs = (values.to(device), moved, buffers, above.to(device))
        keys = torch.tensor([5, 6], device=device)
        inputs = (*inputs, keys, present.to(device))
        (to_values, to_weights), out = vmap(grad(loss, argnums=(0, 1), has_aux=True))(*inputs)
        running = [buffers["norm.running_mean"], buffers["norm.running_var"]]
        results.append([x.cpu() for x in (out, to_values, *to_weights.values(), *running)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)


def test_absent_rows_count_nowhere():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(20, 3, generator=generator)
    absent = 100 * torch.randn(5, 3, generator=generator)
    masked, plain = MaskedNorm(3), nn.BatchNorm1d(3)
    present = torch.arange(25) < 20
    ours = masked(torch.cat([rows, absent]), present)[:20]
    torch.testing.assert_close(ours, plain(rows))
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(masked.state_dict()[name], value)
    masked.eval(), plain.eval()
    torch.testing.assert_close(masked(rows, present), plain(rows))


def test_residual_norm_is_its_formula():
    torch.manual_seed(0)
    hidden, own, received = torch.randn(3, 4, 5, 8).unbind()
    norm = nn.LayerNorm(8)
    nn.init.normal_(norm.weight)
    value = hidden + functional.gelu(own + received)
    standard = (value - value.mean(-1, keepdim=True)) / (
        value.var(-1, correction=0, keepdim=True) + norm.eps
    ).sqrt()
    torch.testing.assert_close(
        residual_norm(hidden, own, received, norm), standard * norm.weight + norm.bias
    )


N_SITES = 4
# Site 2 has no row, site 3 a single one, and the last row belongs to no site.
SITE = torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, -1])
LABEL = torch.tensor([0, 1, 1, 0, 0, 1, 1, 1, 0])
MEMBERS = membership(SITE, N_SITES, torch.float64)


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def logits(generator):
    return torch.randn(len(SITE), generator=generator, dtype=torch.float64)


@pytest.fixture
def represented(generator):
    return torch.randn(len(SITE), 3, generator=generator, dtype=torch.float64)


def test_means_are_those_of_the_rows_of_a_site(represented):
    means = site_means(represented, MEMBERS)
    torch.testing.assert_close(means[0], represented[:3].mean(0))
    torch.testing.assert_close(means[3], represented[7])
    assert torch.equal(means[2], torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(site_means(represented[:, 0], MEMBERS), means[:, 0])


def test_risk_is_a_mean_of_means_over_sites_that_are_there(logits):
    risks = [
        functional.binary_cross_entropy_with_logits(logits[e == SITE], LABEL[e == SITE].double())
        for e in (0, 1, 3)
    ]
    torch.testing.assert_close(mean_site_risk(logits, LABEL, MEMBERS), torch.stack(risks).mean())


def test_distance_to_the_mean_counts_every_pair(generator):
    values = torch.randn(6, 5, generator=generator, dtype=torch.float64)
    usable = torch.tensor([True, True, False, True, True, False])
    pairs = [(values[a] - values[b]).square().sum() for a, b in combinations((0, 1, 3, 4), 2)]
    torch.testing.assert_close(mean_squared_distance(values, usable), torch.stack(pairs).mean())
    assert mean_squared_distance(values, torch.arange(6) == 1) == 0


def test_moments_match_torch(represented):
    moments = site_moments(represented, MEMBERS)
    assert moments.usable.tolist() == [True, True, False, False]
    for site in (0, 1):
        rows = represented[site == SITE]
        torch.testing.assert_close(moments.means[site], rows.mean(0))
        torch.testing.assert_close(moments.covariances[site], rows.T.cov())


@pytest.mark.parametrize("loss", ["risk", "coral", "squared", "split_halves"])
def test_rows_of_no_site_have_no_gradient(loss, logits, represented):
    logits, represented = logits.requires_grad_(), represented.requires_grad_()
    value = {
        "risk": lambda: mean_site_risk(logits, LABEL, MEMBERS),
        "coral": lambda: coral_penalty(site_moments(represented, MEMBERS), True),
        "squared": lambda: irm_penalty(logits, LABEL, MEMBERS),
        "split_halves": lambda: irm_penalty_of_halves(logits, LABEL, MEMBERS),
    }[loss]()
    value.backward()
    gradient = represented.grad if loss == "coral" else logits.grad
    assert torch.isfinite(gradient).all()
    assert (gradient[-1] == 0).all() and (gradient[0] != 0).any()


def test_halves_take_turns_within_site_and_class(logits):
    """Site 1 has two rows of either class: rows 3 and 5 against rows 4 and 6."""
    halves = [
        ((logits[rows].sigmoid() - LABEL[rows]) * logits[rows]).mean() for rows in ([3, 5], [4, 6])
    ]
    members = membership(torch.where(SITE == 1, 1, -1), N_SITES, torch.float64)
    torch.testing.assert_close(irm_penalty_of_halves(logits, LABEL, members), halves[0] * halves[1])


def test_halves_are_unbiased_where_squares_are_not(generator):
    """Squares of small batches measure their own noise; products of halves do not."""
    draws, size = 4000, 8
    logits = torch.randn(draws, size, generator=generator, dtype=torch.float64) + 0.3
    label = torch.tensor([0, 1]).repeat(size // 2)
    members = torch.ones(size, 1, dtype=torch.float64)
    truth = torch.stack([dummy_gradients(row, label, members) for row in logits]).mean() ** 2
    squares = torch.stack([irm_penalty(row, label, members) for row in logits])
    products = torch.stack([irm_penalty_of_halves(row, label, members) for row in logits])
    error = products.std() / draws**0.5
    assert (products.mean() - truth).abs() < 4 * error
    assert squares.mean() - truth > 10 * error
    assert (products < 0).any()
