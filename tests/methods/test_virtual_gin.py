"""The two-layer GIN with a virtual node, against the formula of its parts."""

import pytest
import torch

from brio_core.methods.brainood.virtual_gin import VirtualGin, WideGin


def graphs(n_graphs=3, n_rois=6, width=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(n_graphs, n_rois, width, generator=generator)
    upper = (torch.rand(n_graphs, n_rois, n_rois, generator=generator) < 0.5).float().triu(1)
    return nodes, upper + upper.mT


def make(*sizes, **options):
    torch.manual_seed(0)
    return VirtualGin(*sizes, **options)


@pytest.mark.parametrize("width", [3, 20])
def test_a_layer_is_its_formula_whichever_product_comes_first(width):
    nodes, adjacency = graphs(width=width)
    torch.manual_seed(0)
    layer = WideGin(width, 4).eval()
    inner = layer.first(nodes + adjacency @ nodes) / (1 + layer.norm.eps) ** 0.5
    torch.testing.assert_close(layer(nodes, adjacency), layer.second(inner.relu()))


@pytest.mark.parametrize("width", [3, 20])
def test_a_diagonal_of_ones_stands_for_the_node_itself(width):
    nodes, adjacency = graphs(width=width)
    module, key = make(width, 4, 0.5), torch.tensor(3)
    looped = module(nodes, adjacency + torch.eye(6), key, 0, looped=True)
    torch.testing.assert_close(looped, module(nodes, adjacency, key, 0), rtol=1e-4, atol=1e-5)


def test_the_virtual_node_is_heard_before_the_second_layer():
    nodes, adjacency = graphs()
    module = make(5, 4, 0.0).eval()
    plain = module(nodes, adjacency, None, 0)
    with torch.no_grad():
        module.virtual += 1.0
    assert not torch.allclose(module(nodes, adjacency, None, 0), plain)
    # Where a node subtracts the mean of its neighbours, a shift of all nodes is not heard.
    mean = -adjacency / adjacency.sum(-1, keepdim=True)
    shifted = module(nodes, mean, None, 0)
    with torch.no_grad():
        module.virtual.zero_()
    torch.testing.assert_close(module(nodes, mean, None, 0), shifted)


def test_dropout_asks_the_key_only():
    nodes, adjacency = graphs()
    module = make(5, 4, 0.5).eval()
    key = torch.tensor(3)
    first = module(nodes, adjacency, key, 0)
    assert torch.equal(first, module(nodes, adjacency, key, 0))
    assert not torch.equal(first, module(nodes, adjacency, key, 10))
    assert 0.3 < (first == 0).float().mean() < 0.7
    assert (module(nodes, adjacency, None, 0) != 0).all()
