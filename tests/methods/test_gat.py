"""GAT: the properties that make attention what the paper says."""

import pytest
import torch
from synthetic import make_problem, settings_of

from brio_core.methods.gat import DenseGat, Gat
from brio_core.system.errors import BrioError

N_ROIS, WIDTH, HEADS = 8, 5, 3


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return DenseGat(WIDTH, HEADS, 4)


@pytest.fixture
def nodes(generator):
    return torch.randn(2, N_ROIS, WIDTH, generator=generator)


@pytest.fixture
def mask(generator):
    mask = torch.rand(2, N_ROIS, N_ROIS, generator=generator) > 0.5
    # The last node hears nobody but itself.
    mask[:, -1] = mask[..., -1] = False
    return mask | mask.mT | torch.eye(N_ROIS, dtype=torch.bool)


def test_attention_sums_to_one_and_is_zero_outside_the_mask(layer, nodes, mask):
    attention = layer.attention(nodes, mask)
    torch.testing.assert_close(attention.sum(-1), torch.ones(2, HEADS, N_ROIS))
    assert (attention[~mask[:, None].expand_as(attention)] == 0).all()
    assert (attention[..., -1, -1] == 1).all()


def test_equal_nodes_get_uniform_attention(layer, mask):
    attention = layer.attention(torch.ones(2, N_ROIS, WIDTH), mask)
    uniform = mask / mask.sum(-1, keepdim=True)
    torch.testing.assert_close(attention, uniform[:, None].expand_as(attention))


def test_a_node_does_not_hear_those_outside_its_neighbourhood(layer, nodes, mask):
    before = layer(nodes, mask)
    changed = nodes.clone()
    changed[:, 2] += 1
    after = layer(changed, mask)
    hears = mask[..., 2]
    assert torch.equal(before[~hears], after[~hears])
    assert (before[hears] != after[hears]).any(-1).all()


def test_all_receivers_rank_common_senders_alike(layer, nodes):
    everyone = torch.ones(2, N_ROIS, N_ROIS, dtype=torch.bool)
    order = layer.attention(nodes, everyone).argsort(-1)
    assert (order == order[..., :1, :]).all()


def test_edge_weights_are_learnt_where_they_are_asked_for():
    problem, _ = make_problem("gat", edge_weight="signed")
    module = problem.module(problem.data.folds[0])
    assert all((layer.edge == 0).all() for layer in module.attentions)
    module.logits(module.features(problem.inputs)).sum().backward()
    assert all((layer.edge.grad != 0).any() for layer in module.attentions)


def test_heads_share_the_width():
    module = Gat(settings_of("gat", hidden=8, heads=4), 10, 3)
    assert module.represent(module.features({"fc": torch.zeros(2, 10, 10)})).shape == (2, 8)
    with pytest.raises(BrioError, match="multiple of heads"):
        settings_of("gat", hidden=8, heads=3)
