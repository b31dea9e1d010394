"""Readouts and node normalisation."""

import pytest
import torch

from brio_core.methods.layers.norms import NodeNorm
from brio_core.methods.layers.readouts import POOLINGS, pool


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
