"""Chebyshev convolution against PyTorch Geometric's, on the same weights and graphs."""

import pytest
import torch
from torch import nn
from torch_geometric.nn import ChebConv

from brio_core.methods.fc_hgnn.chebyshev import DenseChebyshev

N_GRAPHS, N_ROIS, WIDTH = 3, 9, 5


@pytest.fixture
def graphs():
    """Nodes and graphs of ones and zeros; one node has no edge at all."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(N_GRAPHS, N_ROIS, WIDTH, generator=generator)
    upper = (torch.rand(N_GRAPHS, N_ROIS, N_ROIS, generator=generator) > 0.6).float().triu(1)
    adjacency = upper + upper.mT
    adjacency[:, -1] = adjacency[..., -1] = 0
    return nodes, adjacency


@pytest.mark.parametrize("terms", [1, 2, 3, 4])
def test_equals_pytorch_geometric(graphs, terms):
    dense, reference = DenseChebyshev(WIDTH, 4, terms), ChebConv(WIDTH, 4, K=terms)
    nn.init.normal_(dense.bias)
    reference.bias.data.copy_(dense.bias)
    for line, block in zip(reference.lins, dense.weight.chunk(terms, 1)):
        line.weight.data.copy_(block)
    expected = torch.stack([reference(x, graph.nonzero().T) for x, graph in zip(*graphs)])
    torch.testing.assert_close(dense(*graphs), expected, rtol=0, atol=1e-5)


def test_a_node_without_edges_hears_nobody(graphs):
    nodes, adjacency = graphs
    dense = DenseChebyshev(WIDTH, 4)
    changed = nodes.clone()
    changed[:, :-1] += 1
    torch.testing.assert_close(dense(nodes, adjacency)[:, -1], dense(changed, adjacency)[:, -1])
