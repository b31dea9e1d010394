"""GCN, GAT and GIN: the properties that their papers give them."""

import pytest
import torch
from synthetic import make_problem, settings_of

from brio_core.connectivity.graphs import normalised_adjacency, subject_graph
from brio_core.methods.gat import DenseGat, Gat
from brio_core.methods.gcn import Gcn
from brio_core.methods.gin import Gin, pool
from brio_core.methods.layers.convolutions import DenseGcn, DenseGin
from brio_core.methods.layers.norms import NodeNorm
from brio_core.system.errors import BrioError


def random_graph(n_rois=12, batch=3):
    generator = torch.Generator().manual_seed(0)
    fc = torch.randn(batch, n_rois, n_rois, generator=generator).double() * 0.4
    return (fc + fc.mT) * ~torch.eye(n_rois, dtype=torch.bool)


def test_permuting_rois_leaves_the_logit_unchanged():
    model = Gcn(settings_of("gcn"), 12, 4).double().eval()
    fc = random_graph()
    features = model.features({"fc": fc})
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    # Generic node features: rows move with the graph, columns stay.
    permuted = {
        "operator": features["operator"][:, order][:, :, order],
        "nodes": features["nodes"][:, order],
    }
    torch.testing.assert_close(model.logits(features), model.logits(permuted), atol=1e-5, rtol=0)


def test_operator_is_symmetric_with_largest_eigenvalue_one():
    operator = normalised_adjacency(random_graph().abs())
    torch.testing.assert_close(operator, operator.mT)
    largest = torch.linalg.eigvalsh(operator)[:, -1]
    torch.testing.assert_close(largest, torch.ones_like(largest))


def test_without_edges_only_the_self_loop_remains():
    layer = DenseGcn(12, 5).double()
    nodes = torch.randn(2, 12, 12, generator=torch.Generator().manual_seed(2)).double()
    operator = normalised_adjacency(torch.zeros(2, 12, 12).double())
    torch.testing.assert_close(layer(nodes, operator), nodes @ layer.weight.T + layer.bias)


def test_negative_weights_and_isolated_nodes_give_no_nan():
    for edge_weight in ("abs", "binary"):
        model = Gcn(settings_of("gcn", edge_weight=edge_weight), 12, 4).double().eval()
        negative = -random_graph().abs()
        isolated = random_graph()
        isolated[:, 0] = isolated[:, :, 0] = 0
        for fc in (negative, isolated):
            assert torch.isfinite(model.logits(model.features({"fc": fc}))).all()


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


N_ROIS, WIDTH = 6, 5


@pytest.fixture
def edges(generator):
    upper = (torch.rand(2, N_ROIS, N_ROIS, generator=generator) > 0.5).float().triu(1)
    return upper + upper.mT


@pytest.fixture
def gin_layer():
    torch.manual_seed(0)
    return DenseGin(WIDTH, 4, learn_epsilon=True).eval()


@pytest.mark.parametrize("learn_epsilon", [True, False])
def test_with_epsilon_zero_the_aggregate_is_that_of_self_loops(nodes, edges, learn_epsilon):
    layer = DenseGin(WIDTH, 4, learn_epsilon)
    nodes = nodes.round()
    assert torch.equal(layer.aggregate(nodes, edges), (edges + torch.eye(N_ROIS)) @ nodes)


def test_sum_readout_of_a_disjoint_union_is_the_sum(gin_layer, nodes, edges):
    union = torch.block_diag(*edges)[None]
    together = pool(gin_layer(nodes.flatten(0, 1)[None], union), "sum")
    torch.testing.assert_close(together[0], pool(gin_layer(nodes, edges), "sum").sum(0))


def test_the_centre_of_a_star_counts_its_leaves(gin_layer):
    def centre(leaves):
        star = torch.zeros(leaves + 1, leaves + 1)
        star[0, 1:] = star[1:, 0] = 1
        return gin_layer.aggregate(torch.ones(leaves + 1, WIDTH), star)[0]

    assert not torch.allclose(centre(2), centre(3))
    torch.testing.assert_close(centre(2) / 3, centre(3) / 4)


@pytest.mark.parametrize("pooling", ["mean", "sum"])
def test_permuting_nodes_changes_nothing(generator, pooling):
    module = Gin(settings_of("gin", pooling=pooling), N_ROIS, 2).eval()
    features = {
        "nodes": torch.randn(3, N_ROIS, N_ROIS, generator=generator),
        "adjacency": subject_graph(torch.rand(3, N_ROIS, N_ROIS, generator=generator)).float(),
    }
    order = torch.randperm(N_ROIS, generator=generator)
    permuted = {
        "nodes": features["nodes"][:, order],
        "adjacency": features["adjacency"][:, order][:, :, order],
    }
    torch.testing.assert_close(module.logits(features), module.logits(permuted), rtol=0, atol=1e-5)


def test_the_centre_is_not_its_own_neighbour(generator):
    module = Gin(settings_of("gin"), N_ROIS, 2)
    features = module.features({"fc": torch.randn(2, N_ROIS, N_ROIS, generator=generator)})
    assert (features["adjacency"].diagonal(dim1=-2, dim2=-1) == 0).all()
    assert set(features["adjacency"].unique().tolist()) == {0.0, 1.0}


def test_the_representation_is_what_the_head_reads(generator):
    fc = {"fc": torch.randn(2, N_ROIS, N_ROIS, generator=generator)}
    for readout, width in (("concat", N_ROIS + 8 + 8), ("last", 8)):
        module = Gin(settings_of("gin", hidden=8, readout=readout), N_ROIS, 2).eval()
        represented = module.represent(module.features(fc))
        assert represented.shape == (2, width)
        torch.testing.assert_close(
            module.head(represented).squeeze(-1), module.logits(module.features(fc))
        )
    assert torch.equal(
        Gin(settings_of("gin"), N_ROIS, 2).represent(module.features(fc))[:, :N_ROIS],
        fc["fc"].mean(-2),
    )


@pytest.mark.parametrize("how", ["mean", "sum"])
def test_pooling_does_not_depend_on_the_order_of_nodes(how):
    nodes = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pool(nodes, how), pool(nodes.flip(1), how))
    assert pool(nodes, how).shape == (3, 4)


def test_sum_is_mean_times_the_number_of_nodes():
    nodes = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pool(nodes, "sum"), 7 * pool(nodes, "mean"))


def test_nodes_of_all_graphs_are_normalised_per_channel():
    nodes = torch.randn(3, 7, 4, generator=torch.Generator().manual_seed(0)) * 5 + 2
    normed = NodeNorm(4)(nodes)
    assert normed.shape == nodes.shape
    torch.testing.assert_close(normed.mean((0, 1)), torch.zeros(4), rtol=0, atol=1e-5)
    torch.testing.assert_close(normed.var((0, 1), unbiased=False), torch.ones(4))
