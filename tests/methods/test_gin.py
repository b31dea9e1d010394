"""GIN: sums that count neighbours, and a readout of all layers."""

import pytest
import torch
from synthetic import settings_of

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.gin import POOLINGS, Gin, pool
from brio_core.methods.layers.convolutions import DenseGin
from brio_core.methods.layers.norms import NodeNorm

N_ROIS, WIDTH = 6, 5


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def nodes(generator):
    return torch.randn(2, N_ROIS, WIDTH, generator=generator)


@pytest.fixture
def edges(generator):
    upper = (torch.rand(2, N_ROIS, N_ROIS, generator=generator) > 0.5).float().triu(1)
    return upper + upper.mT


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return DenseGin(WIDTH, 4, learn_epsilon=True).eval()


@pytest.mark.parametrize("learn_epsilon", [True, False])
def test_with_epsilon_zero_the_aggregate_is_that_of_self_loops(nodes, edges, learn_epsilon):
    layer = DenseGin(WIDTH, 4, learn_epsilon)
    nodes = nodes.round()
    assert torch.equal(layer.aggregate(nodes, edges), (edges + torch.eye(N_ROIS)) @ nodes)


def test_sum_readout_of_a_disjoint_union_is_the_sum(layer, nodes, edges):
    union = torch.block_diag(*edges)[None]
    together = pool(layer(nodes.flatten(0, 1)[None], union), "sum")
    torch.testing.assert_close(together[0], pool(layer(nodes, edges), "sum").sum(0))


def test_the_centre_of_a_star_counts_its_leaves(layer):
    def centre(leaves):
        star = torch.zeros(leaves + 1, leaves + 1)
        star[0, 1:] = star[1:, 0] = 1
        return layer.aggregate(torch.ones(leaves + 1, WIDTH), star)[0]

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


@pytest.mark.parametrize("how", POOLINGS)
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
