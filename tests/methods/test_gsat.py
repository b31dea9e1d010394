"""GSAT: information constraint, attention on edges, and the schedule of its rate."""

import math
from itertools import pairwise

import pytest
import torch
from synthetic import batch_of, few_steps, settings_of

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.gsat import Gsat
from brio_core.methods.layers.edge_lists import EdgeLists, list_edges
from brio_core.methods.layers.edge_masks import bernoulli_divergence

ROIS, SUBJECTS = 12, 6


def make(**overrides):
    return few_steps("gsat", SUBJECTS, ROIS, **overrides)


def attention_of(module, features):
    """What multiplies the messages, (B, P, P)."""
    edges = EdgeLists.of(features)
    entered = module.enter(features["nodes"])
    attention = module.edge_logits(entered, features, edges, edges.mask, None).sigmoid()
    return module.attended(features, edges, attention)


def test_divergence_is_zero_at_the_rate_and_minus_log_rate_at_one():
    present = torch.ones(3, 5)
    for rate in (0.5, 0.7, 0.9):
        assert bernoulli_divergence(torch.full((3, 5), rate), rate, present) < 1e-6
        assert bernoulli_divergence(torch.full((3, 5), rate - 0.1), rate, present) > 1e-3
        sure = bernoulli_divergence(torch.ones(3, 5), rate, present)
        torch.testing.assert_close(sure, torch.tensor(-math.log(rate)), atol=1e-5, rtol=0)


def test_evaluation_is_deterministic_and_training_draws_differ():
    module, features = make()
    together = module.logits(features)
    assert torch.equal(together, module.logits(features))
    alone = module.logits({key: value[2:3] for key, value in features.items()})
    torch.testing.assert_close(alone, together[2:3], rtol=0, atol=1e-5)
    module.train()
    losses = [module.loss(batch_of(features, key), "0.7")[0] for key in (1, 2)]
    assert losses[0] != losses[1]


def test_attention_is_symmetric_and_zero_outside_the_mask():
    module, features = make()
    attention = attention_of(module, features)
    mask = EdgeLists.of(features).mask
    torch.testing.assert_close(attention, attention.mT)
    assert ((attention > 0) == (mask > 0)).all() and (attention <= 1).all()
    assert attention[mask > 0].std() > 0


def test_attention_is_permutation_equivariant():
    module, features = make()
    order = torch.randperm(ROIS, generator=torch.Generator().manual_seed(2))
    mask = EdgeLists.of(features).mask.bool()
    edges = list_edges(mask[:, order][:, :, order], module.hyperparameters.density)
    # Generic node features: rows move, columns stay.
    moved = {"nodes": features["nodes"][:, order], **edges._asdict()}
    wanted = attention_of(module, features)[:, order][:, :, order]
    torch.testing.assert_close(attention_of(module, moved), wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(module.logits(moved), module.logits(features), rtol=0, atol=1e-5)


@pytest.mark.parametrize("edge_weight", ["binary", "abs"])
def test_full_attention_is_the_plain_gin(edge_weight):
    module, features = make(edge_weight=edge_weight)
    edges = EdgeLists.of(features)
    ones = torch.ones(SUBJECTS, 2, edges.pairs.shape[-1] // 2)
    forced = module.attended(features, edges, ones)
    plain = subject_graph(features["nodes"], module.hyperparameters.density).float()
    if edge_weight == "abs":
        plain = plain * features["nodes"].abs()
    entered = module.enter(features["nodes"])
    assert torch.equal(
        module.nodes(entered, forced, None, 0), module.nodes(entered, plain, None, 0)
    )


@pytest.mark.parametrize(
    ("epochs", "final_rate", "first"), [(200, 0.7, 61), (200, 0.5, 61), (100, 0.7, 31), (6, 0.7, 3)]
)
def test_rate_falls_to_its_final_value_and_stays(epochs, final_rate, first):
    settings = settings_of("gsat", epochs=epochs, final_rate=final_rate, first_epoch=1)
    rates = [settings.rate(epoch) for epoch in range(1, epochs + 1)]
    assert rates[0] == 0.9
    assert all(later <= earlier for earlier, later in pairwise(rates))
    assert rates[-1] == pytest.approx(final_rate)
    assert settings.first_epoch == first
    assert settings.rate(first) == pytest.approx(final_rate)
    assert settings.rate(first - 1) > final_rate + 0.05


def test_published_decay_is_ten_epochs():
    settings = settings_of("gsat", epochs=100, decay_share=0.2, first_epoch=1)
    rates = [settings.rate(epoch) for epoch in (10, 11, 20, 21)]
    assert rates == pytest.approx([0.9, 0.8, 0.8, 0.7])


def test_the_phase_is_the_rate():
    settings = settings_of("gsat", epochs=200, first_epoch=1)
    phases = [Gsat.phase(settings, epoch) for epoch in (1, 31, 61, 200)]
    assert phases == ["0.9", "0.8", "0.7", "0.7"]
