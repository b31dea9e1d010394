"""DiSCO: sparse gate, diverse masks, keep rates, and what each loss trains."""

import math

import torch
import yaml
from synthetic import METHODS, trained_by, untrained

from brio_core.methods.disco.method import (
    Disco,
    Gate,
    Opinions,
    cross_entropies,
    keep_penalty,
    load_balance,
    teacher_divergence,
)
from brio_core.methods.interface import TRAIN, WARM_UP, Batch
from brio_core.methods.layers.edge_lists import EdgeLists
from brio_core.methods.layers.edge_masks import diversity_hinge

ROIS, SUBJECTS, EXPERTS = 12, 8, 3
LABEL = torch.arange(SUBJECTS) % 2


def make(**overrides):
    module, features = untrained("disco", SUBJECTS, ROIS, **overrides)
    return module, Batch(features, LABEL, torch.zeros_like(LABEL), torch.tensor(3))


def test_gate_weights_are_sparse_distributions():
    gate = Gate(16, 0.1, 1.38)
    with torch.no_grad():
        # Scores far apart, as after training.
        gate.last.weight.mul_(30)
    weights = gate(torch.randn(50, 8, 2, generator=torch.Generator().manual_seed(0)) * 3)
    torch.testing.assert_close(weights.sum(-1), torch.ones(50))
    assert (weights >= 0).all() and (weights == 0).any()


def test_diversity_is_free_up_to_the_allowed_correlation():
    present = torch.ones(2, 8)
    bits = torch.arange(8)
    uncorrelated = torch.stack([bits >> k & 1 for k in range(3)]).float().expand(2, 3, 8)
    assert diversity_hinge(uncorrelated, present, 0.1) == 0
    same = uncorrelated[:, :1].expand(2, 3, 8)
    torch.testing.assert_close(diversity_hinge(same, present, 0.1), torch.tensor(0.9))
    flipped = same * torch.tensor([1.0, -1.0, 1.0])[:, None] + torch.tensor([0.0, 1, 0])[:, None]
    torch.testing.assert_close(diversity_hinge(flipped, present, 0.1), torch.tensor(0.9))
    opinions = Opinions(None, None, same, torch.ones(2, 3, 5))
    torch.testing.assert_close(Disco.diversity(opinions, present), torch.tensor(0.45))


def test_keep_rate_costs_nothing_only_at_the_wanted_share():
    present = torch.tensor([[1.0, 1, 1, 1, 0, 0], [1.0, 1, 1, 1, 1, 1]])
    half = torch.tensor([[1.0, 1, 0, 0, 0, 0], [1.0, 1, 1, 0, 0, 0]])
    masks = half[:, None].repeat(1, 2, 1)
    routing = torch.tensor([[0.5, 0.5], [1.0, 0.0]])
    assert keep_penalty(masks, present, routing, 0.5) == 0
    masks[1, 1] = present[1]
    assert keep_penalty(masks, present, routing, 0.5) > 0
    unused = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
    assert keep_penalty(masks, present, unused, 0.5) == 0


def test_the_gate_loss_trains_the_gate_alone():
    module, batch = make()
    _, logs = module.loss(batch, WARM_UP)
    assert trained_by(module, logs["gate"]) == {"gate"}


def test_warm_up_routes_uniformly_and_gives_the_gate_nothing():
    module, batch = make()
    module.eval()
    _, logs = module.loss(batch, WARM_UP)
    assert trained_by(module, logs["classification"]) == {
        "selector", "edge_selector", "encoder", "head"
    }  # fmt: skip
    opinions = module.ask(batch.features, batch.key)
    wanted = cross_entropies(opinions.logits, LABEL).mean()
    torch.testing.assert_close(logs["classification"], wanted)
    assert "gate" in trained_by(module, module.loss(batch, TRAIN)[1]["classification"])


def test_evaluation_is_repeatable_and_independent_of_the_batch():
    module, batch = make()
    for key in range(3):
        module.loss(batch._replace(key=torch.tensor(key)), TRAIN)
    module.eval()
    together = module.logits(batch.features)
    assert torch.equal(together, module.logits(batch.features))
    alone = [
        module.logits({name: value[i : i + 1] for name, value in batch.features.items()})
        for i in range(SUBJECTS)
    ]
    torch.testing.assert_close(torch.cat(alone), together, rtol=0, atol=1e-5)


def test_masks_are_binary_and_shared_by_both_directions():
    module, batch = make()
    opinions = module.ask(batch.features, batch.key)
    present = EdgeLists.of(batch.features).present
    assert set(opinions.edges.unique().tolist()) == {0.0, 1.0}
    assert (opinions.edges * (1 - present)[:, None] == 0).all()
    assert opinions.edges.shape[:2] == (SUBJECTS, EXPERTS)
    assert opinions.nodes.shape == (SUBJECTS, EXPERTS, ROIS)


def test_nodes_without_edges_are_blanked():
    module, batch = make()
    module.eval()
    with torch.no_grad():
        module.edge_selector.last.weight.zero_()
        module.edge_selector.last.bias.fill_(-5)
    opinions = module.ask(batch.features, None)
    assert (opinions.edges == 0).all() and (opinions.nodes == 0).all()
    # All graphs look alike to every expert.
    torch.testing.assert_close(opinions.pooled, opinions.pooled[:1].expand_as(opinions.pooled))


def test_gate_statistics_of_known_predictions():
    logits = torch.tensor([[[0.0, 0.0], [0.0, math.log(3)]]])
    found = Gate.statistics(logits)[0]
    # KL + KL between (1/2, 1/2) and (1/4, 3/4), halved.
    half_jeffreys = 0.5 * 0.25 * math.log(3)
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    wanted = [
        [0.5, 0.0, math.log(2), -math.log(2), -half_jeffreys],
        [0.75, 0.5, entropy, -math.log(4), -half_jeffreys],
    ]
    torch.testing.assert_close(found, torch.tensor(wanted))


def test_gate_losses_at_their_minima():
    errors = torch.rand(6, 4, generator=torch.Generator().manual_seed(0))
    teacher = (-errors / 0.75).softmax(-1)
    assert teacher_divergence(teacher, errors).abs() < 1e-6
    assert teacher_divergence(teacher.flip(-1), errors) > 0.01
    one_each = torch.eye(4)
    torch.testing.assert_close(load_balance(one_each), torch.tensor(0.0), atol=1e-6, rtol=0)
    uniform = torch.full((4, 4), 0.25)
    torch.testing.assert_close(load_balance(uniform), torch.tensor(0.2 * math.log(4)))
    assert load_balance(torch.eye(4)[:1].expand(4, 4)) > 1


def test_routing_starts_after_warm_up_and_checkpoints_with_it():
    presets = yaml.safe_load((METHODS / "disco.yaml").read_text())["presets"]
    for preset in ({}, presets["published"]):
        settings = Disco.Hyperparameters.of({**presets["common"], **preset}, "disco")
        # The authors count from 1 and route unless epoch < 10.
        phases = [Disco.phase(settings, epoch) for epoch in range(1, 30)]
        assert phases == [WARM_UP if epoch < 10 else TRAIN for epoch in range(1, 30)]
        assert settings.first_epoch == 10
