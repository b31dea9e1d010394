"""DisC: complementary masks, separate branches, relative difficulty and swapping."""

import pytest
import torch
from synthetic import make_problem, settings_of, train_all, untrained
from torch.func import grad

from brio_core.methods.disc import (
    APART,
    SWAPPED,
    Disc,
    EdgeNetwork,
    generalised_cross_entropy,
    relative_difficulty,
)
from brio_core.methods.interface import Batch
from brio_core.methods.layers.edge_lists import EdgeLists

ROIS, SUBJECTS = 12, 8
LABEL = torch.arange(SUBJECTS) % 2


def make(**overrides):
    return untrained("disc", SUBJECTS, ROIS, **overrides)


def gradients(module, loss):
    """Largest absolute gradient of each part of the module."""
    module.zero_grad()
    loss.backward()
    largest = {}
    for name, parameter in module.named_parameters():
        part = name.split(".")[0]
        size = 0.0 if parameter.grad is None else float(parameter.grad.abs().max())
        largest[part] = max(largest.get(part, 0.0), size)
    return largest


def test_masks_are_between_0_and_1_and_sum_to_1(monkeypatch):
    module, features = make()
    seen = {}
    for part in ("causal_encoder", "bias_encoder"):
        encoder = getattr(module, part)

        def spy(nodes, operator, scale, part=part, forward=encoder.forward):
            seen[part] = operator, scale
            return forward(nodes, operator, scale)

        monkeypatch.setattr(encoder, "forward", spy)
    _, _, edge_mask = module.encode(features)
    edges = EdgeLists.of(features)
    real = edge_mask[edges.present > 0]
    assert (real > 0).all() and (real < 1).all()
    assert (edge_mask[edges.present == 0] == 0).all()
    count = edges.mask.sum(-1, keepdim=True)
    (causal, kept), (bias, left) = seen["causal_encoder"], seen["bias_encoder"]
    torch.testing.assert_close((causal + bias) * count, edges.mask)
    torch.testing.assert_close(causal * count, edges.spread(edge_mask))
    torch.testing.assert_close(kept + left, torch.ones_like(kept))
    assert (kept > 0).all() and (kept < 1).all()


@pytest.mark.parametrize("order", [None, torch.arange(SUBJECTS).roll(1)])
def test_each_head_trains_its_own_encoder_and_both_train_the_masker(order):
    module, features = make()
    for branch, (own, foreign) in enumerate(
        [("causal_encoder", "bias_encoder"), ("bias_encoder", "causal_encoder")]
    ):
        causal, bias, _ = module.encode(features)
        loss = module.branch_losses(causal, bias, LABEL, order)[branch].mean()
        largest = gradients(module, loss)
        assert largest[foreign] == 0
        assert largest[own] > 0 and largest["masker"] > 0


def literal_network(network, nodes, edges):
    """One row [h_i ; h_j] per directed edge of the batch, and torch's own BatchNorm."""
    graph, place = (edges.pairs > 0).nonzero().T
    pair = edges.pairs[graph, place]
    hidden = torch.cat([nodes[graph, pair // ROIS], nodes[graph, pair % ROIS]], -1)
    norms = [torch.nn.BatchNorm1d(norm.num_features).double() for norm in network.norms]
    for linear, norm, own in zip(network.linears, norms, network.norms):
        norm.load_state_dict(own.state_dict())
        norm.weight, norm.bias = own.weight, own.bias
        hidden = norm.train(network.training)(linear(hidden)).relu()
    return network.last(hidden).squeeze(-1), norms


@pytest.mark.parametrize("training", [True, False])
def test_edge_network_has_three_hidden_layers_and_equals_itself_on_every_edge(training):
    _, features = make()
    edges = EdgeLists.of(features)
    network = EdgeNetwork(16).double().train(training)
    assert [tuple(one.weight.shape) for one in network.linears] == [(8, 16), (4, 8), (2, 4)]
    draw = torch.Generator().manual_seed(3)
    for norm in network.norms:
        norm.weight.data.uniform_(0.5, 1.5, generator=draw)
        norm.running_mean.uniform_(-0.1, 0.1, generator=draw)
    nodes = torch.randn(SUBJECTS, ROIS, 8, generator=draw, dtype=torch.float64).requires_grad_()
    wanted, norms = literal_network(network, nodes, edges)
    found = network(nodes, edges, edges.mask.double()).flatten(1)[edges.pairs > 0]
    torch.testing.assert_close(found, wanted)
    parameters = [nodes, *network.parameters()]
    slopes = [torch.autograd.grad(one.square().sum(), parameters) for one in (found, wanted)]
    torch.testing.assert_close(*slopes)
    for own, twin in zip(network.norms, norms):
        torch.testing.assert_close(own.running_mean, twin.running_mean)
        torch.testing.assert_close(own.running_var, twin.running_var)


def test_generalised_cross_entropy_prefers_what_is_fitted():
    ce = -torch.tensor([1e-6, 0.3, 0.9, 1.0]).log()
    weights = generalised_cross_entropy(ce, 0.7) / ce.clamp_min(1e-30)
    assert weights[0] < 1e-3
    torch.testing.assert_close(weights[1:3], 0.7 * torch.tensor([0.3, 0.9]) ** 0.7)
    slope = grad(lambda x: generalised_cross_entropy(x, 0.7))(torch.tensor(0.0))
    torch.testing.assert_close(slope, torch.tensor(0.7))


def test_gradient_is_q_times_that_of_the_true_generalised_cross_entropy():
    q, margins = 0.7, torch.linspace(-3, 3, 13)
    entropy = torch.nn.functional.softplus

    def coded(margin):
        return generalised_cross_entropy(entropy(-margin), q).sum()

    def true(margin):
        return ((1 - margin.sigmoid() ** q) / q).sum()

    torch.testing.assert_close(grad(coded)(margins), q * grad(true)(margins))


def test_relative_difficulty_is_a_constant_between_0_and_1():
    causal, bias = torch.rand(2, 20, requires_grad=True).unbind(0)
    weight = relative_difficulty(causal, bias, "sample")
    assert weight.shape == (20,) and (weight >= 0).all() and (weight <= 1).all()
    assert not weight.requires_grad
    torch.testing.assert_close(relative_difficulty(bias, bias, "sample"), torch.full((20,), 0.5))
    assert relative_difficulty(causal, bias, "batch").ndim == 0


def test_identity_permutation_gives_the_loss_of_unswapped_pairs():
    module, features = make()
    causal, bias, _ = module.encode(features)
    apart = module.branch_losses(causal, bias, LABEL)
    swapped = module.branch_losses(causal, bias, LABEL, torch.arange(SUBJECTS))
    weight = relative_difficulty(*apart, "sample")
    assert torch.equal(module.objective(*apart, weight), module.objective(*swapped, weight))


def test_swapping_gives_a_swapped_vector_the_label_it_came_with():
    """The listing by bias vectors against the definition by causal vectors."""
    module, features = make()
    causal, bias, _ = module.encode(features)
    order = torch.tensor([3, 0, 2, 1, 7, 6, 4, 5])
    found_causal, found_bias = module.branch_losses(causal, bias, LABEL, order)
    entropy = torch.nn.functional.cross_entropy
    pairs = torch.cat([causal, bias[order]], -1)
    torch.testing.assert_close(
        found_causal, entropy(module.causal_head(pairs), LABEL, reduction="none")
    )
    torch.testing.assert_close(
        found_bias[order], entropy(module.bias_head(pairs), LABEL[order], reduction="none")
    )


def test_no_fold_stops_before_swapping_begins(tmp_path):
    problem, _ = make_problem("disc", epochs=12, first_epoch=1, patience=2, swap_share=0.5)
    for result in train_all(problem, tmp_path):
        assert result.epochs >= 9, "swapping begins in the eighth epoch, and two more may be lost"


def test_swapping_starts_where_the_authors_have_it_and_all_epochs_are_eligible():
    settings = settings_of("disc", epochs=200, first_epoch=1)
    phases = [Disc.phase(settings, epoch) for epoch in range(1, 201)]
    # Theirs: for epoch in range(200), swapped if epoch > 100.
    assert phases == [SWAPPED if epoch > 100 else APART for epoch in range(200)]
    assert settings.first_epoch == 1


def test_one_weight_for_the_batch_keeps_subjects_that_are_known_by_heart():
    """A bias branch that misses one subject only: per sample, it is nearly all that counts."""
    causal, bias = torch.full((20,), 0.7), torch.full((20,), 1e-4)
    bias[0] = 5.0
    shares = {}
    for per in ("sample", "batch"):
        weighted = relative_difficulty(causal, bias, per) * causal
        shares[per] = float(weighted[0] / weighted.sum())
    assert shares["sample"] > 0.99 and shares["batch"] == pytest.approx(1 / 20)
    assert settings_of("disc").weight == "batch"


def test_the_phases_differ_by_the_swapped_loss():
    module, features = make()
    batch = Batch(features, LABEL, torch.zeros_like(LABEL), torch.tensor(3))
    apart, logs = module.loss(batch, APART)
    assert logs["swapped"] == 0
    both, logs = module.loss(batch, SWAPPED)
    torch.testing.assert_close(both, apart + module.hyperparameters.lambda_swap * logs["swapped"])


@pytest.mark.parametrize("options", [{"node_mask": False}, {"weight": "sample"}])
def test_options_train(options):
    module, features = make(**options)
    batch = Batch(features, LABEL, torch.zeros_like(LABEL), torch.tensor(3))
    assert gradients(module, module.loss(batch, SWAPPED)[0])["masker"] > 0
