"""Which nodes are kept, and what becomes of their features and gradients."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch_geometric.nn import SAGPooling
from torch_geometric.nn.dense import dense_diff_pool

from brio_core.methods.fc_hgnn.node_pooling import (
    LocalGlobalPooling,
    NodeScore,
    highest,
    take_nodes,
)

N_GRAPHS, N_ROIS, WIDTH, KEPT = 4, 10, 5, 7


@pytest.fixture(autouse=True)
def weights():
    torch.manual_seed(0)


def graphs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(N_GRAPHS, N_ROIS, WIDTH, generator=generator)
    upper = (torch.rand(N_GRAPHS, N_ROIS, N_ROIS, generator=generator) > 0.6).float().triu(1)
    return nodes, upper + upper.mT


def test_score_and_choice_equal_pytorch_geometric():
    score, reference = NodeScore(WIDTH), SAGPooling(WIDTH, ratio=KEPT / N_ROIS)
    nn.init.normal_(score.heard.bias)
    # One number whose sign alone counts, and which the convolution can learn by itself.
    nn.init.ones_(reference.select.weight)
    reference.gnn.lin_root.weight.data.copy_(score.own.weight)
    reference.gnn.lin_rel.load_state_dict(score.heard.state_dict())
    nodes, adjacency = graphs()
    ours = score(nodes, adjacency)
    index, place = highest(ours, KEPT)
    kept = take_nodes(nodes * ours[..., None], index, place)
    for number, (x, graph) in enumerate(zip(nodes, adjacency)):
        pooled, _, _, _, chosen, _ = reference(x, graph.nonzero().T)
        order = chosen.argsort()
        assert torch.equal(index[number], chosen[order])
        torch.testing.assert_close(kept[number], pooled[order], rtol=0, atol=1e-5)


def test_the_highest_stand_in_the_order_of_nodes_and_ties_go_to_the_first():
    index, place = highest(torch.tensor([[0.1, 0.9, 0.5, 0.5, 0.5, 0.2]]), 3)
    assert index.tolist() == [[1, 2, 3]]
    assert place.tolist() == [[3, 0, 1, 2, 3, 3]]


def test_gradient_of_taken_nodes_is_that_of_indexing():
    nodes, _ = graphs()
    weight = torch.randn(N_GRAPHS, KEPT, WIDTH, generator=torch.Generator().manual_seed(2))
    index, place = highest(nodes.sum(-1), KEPT)

    def plain(values):
        return (values[torch.arange(N_GRAPHS)[:, None], index] * weight).sum()

    def ours(values, index, place, weight):
        return (take_nodes(values, index, place) * weight).sum()

    assert torch.equal(grad(ours)(nodes, index, place, weight), grad(plain)(nodes))
    assert torch.equal(vmap(grad(ours))(nodes, index, place, weight), grad(plain)(nodes))


def test_both_channels_speak_of_the_same_nodes():
    """Node by node: its features times its score, and the clusters that it belongs to."""
    pooling = LocalGlobalPooling(WIDTH, KEPT, 4)
    nodes, adjacency = graphs(1)
    score = pooling.score(nodes, adjacency)
    logits = pooling.assign(nodes, adjacency)
    # The library's own softmax is the only one here.
    coarse = dense_diff_pool(nodes, adjacency, logits)[0]
    for number, out in enumerate(pooling(nodes, adjacency)):
        kept = score[number].topk(KEPT).indices.sort().values.tolist()
        for row, node in zip(out, kept):
            expected = nodes[number, node] * score[number, node]
            expected = expected + logits[number, node].softmax(-1) @ coarse[number]
            torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)
