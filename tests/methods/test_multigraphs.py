"""Convolution over several graphs."""

import torch
from torch.nn import functional

from brio_core.methods.agmgc.multigraphs import MultiGraphConvolution

GENERATOR = torch.Generator().manual_seed(0)
OPERATORS = [torch.randn(3, 7, 7, generator=GENERATOR) for _ in range(2)]
NODES = torch.randn(3, 7, 1, 4, generator=GENERATOR)


def make(mixing):
    torch.manual_seed(1)
    layer = MultiGraphConvolution(4, 5, 2)
    with torch.no_grad():
        layer.mixing.copy_(torch.tensor(mixing))
    return layer


def wanted(layer, nodes, shares):
    heard = [
        share * (operator @ nodes @ weight.weight.T)
        for share, operator, weight in zip(shares, OPERATORS, layer.weights)
    ]
    return functional.gelu(sum(heard) + layer.own(nodes))


def test_graphs_start_with_equal_shares():
    layer = MultiGraphConvolution(4, 5, 2)
    assert layer.mixing.softmax(0).tolist() == [0.5, 0.5]


def test_views_are_the_mixture_and_every_graph_alone():
    layer = make([0.3, -0.9])
    found = layer(NODES, OPERATORS, views=True)
    shares = [layer.mixing.softmax(0), (1, 0), (0, 1)]
    for view, share in enumerate(shares):
        torch.testing.assert_close(found[:, :, view], wanted(layer, NODES[:, :, 0], share))
    torch.testing.assert_close(layer(NODES, OPERATORS, views=False), found[:, :, :1])


def test_views_that_come_in_stay_apart():
    layer = make([0.3, -0.9])
    nodes = torch.randn(3, 7, 3, 4, generator=torch.Generator().manual_seed(2))
    found = layer(nodes, OPERATORS, views=True)
    shares = [layer.mixing.softmax(0), (1, 0), (0, 1)]
    for view, share in enumerate(shares):
        torch.testing.assert_close(found[:, :, view], wanted(layer, nodes[:, :, view], share))
