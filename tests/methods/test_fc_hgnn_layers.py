"""FC-HGNN's encoder of single brains: hemispheres apart, then together."""

import numpy as np
import pytest
import torch
from synthetic import settings_of
from torch import nn
from torch.func import grad, vmap
from torch.nn.functional import leaky_relu
from torch_geometric.nn import ChebConv, GCNConv, SAGPooling
from torch_geometric.nn.dense import dense_diff_pool

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import normalised_adjacency
from brio_core.methods.fc_hgnn.brain import BrainEncoder, hemispheres
from brio_core.methods.fc_hgnn.layers import (
    DenseChebyshev,
    Laplacian,
    LocalGlobalPooling,
    NodeScore,
    highest,
    shared_by_clusters,
    take_nodes,
)
from brio_core.methods.fc_hgnn.method import FcHgnn

N_ROIS = 12


def encoder_and_graphs(sizes):
    """An encoder of so many left, right and midline ROIs, FC, and the weights of its edges."""
    torch.manual_seed(0)
    encoder = BrainEncoder(N_ROIS, 8, 5, kept=0.9, clusters=0.5, rate=0.3).double()
    encoder.sizes = sizes
    for side in ("left", "right"):
        torch.nn.init.normal_(getattr(encoder.first, side).bias)
    fc = 0.5 * torch.randn(4, N_ROIS, N_ROIS).double()
    fc = (fc + fc.mT) * ~torch.eye(N_ROIS, dtype=torch.bool)
    return encoder, fc, fc.abs() * (fc.abs() > 0.65)


@pytest.mark.parametrize("sizes", [(6, 6, 0), (5, 4, 3)])
def test_edges_across_hemispheres_do_not_reach_the_convolutions_within(sizes):
    encoder, fc, weights = encoder_and_graphs(sizes)
    group = torch.arange(3).repeat_interleave(torch.tensor(sizes))
    within = encoder.within(encoder.graphs(fc, weights > 0))
    inside = group[:, None] == group
    assert not torch.equal(weights, weights * inside)
    inside = encoder.graphs(fc, (weights > 0) & inside)
    torch.testing.assert_close(within, encoder.within(inside))


@pytest.mark.parametrize("sizes", [(6, 6, 0), (5, 4, 3)])
def test_without_fc_inside_the_left_hemisphere_the_right_stays_as_it_is(sizes):
    encoder, fc, weights = encoder_and_graphs(sizes)
    is_left = torch.arange(N_ROIS) < sizes[0]
    elsewhere = ~(is_left[:, None] & is_left)
    within = encoder.within(encoder.graphs(fc, weights > 0))
    without = encoder.within(encoder.graphs(fc * elsewhere, (weights > 0) & elsewhere))
    torch.testing.assert_close(within[:, ~is_left], without[:, ~is_left])
    assert not torch.allclose(within[:, is_left], without[:, is_left])


def test_convolutions_equal_pytorch_geometric():
    """Subgraph by subgraph, subject by subject, as the authors compute them."""
    encoder, fc, weights = encoder_and_graphs((6, 6, 0))

    def convolve(linear, x, graph):
        reference = GCNConv(linear.in_features, linear.out_features).double()
        reference.lin.weight.data.copy_(linear.weight)
        reference.bias.data.copy_(linear.bias)
        edges = graph.nonzero().T
        return reference(x, edges, graph[tuple(edges)])

    graphs = encoder.graphs(fc, weights > 0)
    within, whole = encoder.within(graphs), encoder(graphs)
    for x, graph, first, last in zip(fc, weights, within, whole):
        for layer in (encoder.first, encoder.second):
            left = convolve(layer.left, x[:6], graph[:6, :6])
            right = convolve(layer.right, x[6:], graph[6:, 6:])
            x = leaky_relu(torch.cat([left, right]))
        torch.testing.assert_close(first, x, rtol=0, atol=1e-5)
        across = leaky_relu(convolve(encoder.across, x, graph))
        laplacian = Laplacian.of((graph > 0).double()[None])
        pooled = encoder.pooling(across[None], laplacian).flatten()
        torch.testing.assert_close(last, pooled, rtol=0, atol=1e-5)


def test_midline_rows_are_the_mean_of_both_weights():
    encoder, fc, weights = encoder_and_graphs((5, 5, 2))
    graphs, layer = encoder.graphs(fc, weights > 0), encoder.first
    parts, operators = (
        {group: graphs[f"{name}{group}"] for group in range(3)} for name in ("nodes", "within")
    )
    operator = normalised_adjacency(weights[:, 10:, 10:])
    left, right = (
        operator @ (parts[2] @ side.weight.T) + side.bias for side in (layer.left, layer.right)
    )
    expected = leaky_relu((left + right) / 2)
    torch.testing.assert_close(layer(parts, operators)[:, 10:], expected)


def test_hemispheres_come_from_labels_then_centroids_then_halves():
    unknown = np.full((5, 3), np.nan, np.float32)
    centroids = np.array([[-1, 0, 0], [2, 0, 0], [0, 0, 0], [-3, 0, 0], [4, 0, 0]], np.float32)
    names, nothing = tuple("abcde"), ("n/a",) * 5
    labelled = Rois(names, centroids, ("R", "L", "n/a", "R", "L"))
    assert hemispheres(labelled).tolist() == [1, 0, 2, 1, 0]
    assert hemispheres(Rois(names, centroids, nothing)).tolist() == [0, 1, 1, 0, 1]
    assert hemispheres(Rois(names, unknown, nothing)).tolist() == [0, 0, 1, 1, 1]
    # Halves are a guess, which the log and the page tell.
    assert not FcHgnn.notes(labelled) and not FcHgnn.notes(Rois(names, centroids, nothing))
    (note,) = FcHgnn.notes(Rois(names, unknown, nothing))
    assert note.startswith("The hemispheres of the regions are unknown")


@pytest.mark.parametrize(
    ("n_rois", "kept", "clusters", "width"),
    [(24, 22, 12, 440), (116, 105, 58, 2100), (200, 180, 100, 3600)],
)
def test_sizes_of_the_pooling(n_rois, kept, clusters, width):
    model = FcHgnn(settings_of("fc-hgnn"), n_rois, 3)
    assert model.brain.pooling.kept == kept
    assert model.brain.pooling.assign.out_features == clusters
    assert model.brain.width == width


N_GRAPHS, N_NODES, WIDTH = 3, 9, 5


@pytest.fixture
def graphs():
    """Nodes and graphs of ones and zeros; one node has no edge at all."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    nodes = torch.randn(N_GRAPHS, N_NODES, WIDTH, generator=generator)
    upper = (torch.rand(N_GRAPHS, N_NODES, N_NODES, generator=generator) > 0.6).float().triu(1)
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
    nodes, adjacency = graphs
    expected = torch.stack([reference(x, graph.nonzero().T) for x, graph in zip(*graphs)])
    torch.testing.assert_close(dense(nodes, Laplacian.of(adjacency)), expected, rtol=0, atol=1e-5)


def test_a_node_without_edges_hears_nobody(graphs):
    nodes, adjacency = graphs
    dense = DenseChebyshev(WIDTH, 4)
    changed, graph = nodes.clone(), Laplacian.of(adjacency)
    changed[:, :-1] += 1
    torch.testing.assert_close(dense(nodes, graph)[:, -1], dense(changed, graph)[:, -1])


POOLED, POOLED_ROIS, UNITS, KEPT = 4, 10, 5, 7


@pytest.fixture(autouse=True)
def weights():
    torch.manual_seed(0)


def pooled_graphs(seed=0):
    generator = torch.Generator().manual_seed(seed)
    nodes = torch.randn(POOLED, POOLED_ROIS, UNITS, generator=generator)
    upper = (
        (torch.rand(POOLED, POOLED_ROIS, POOLED_ROIS, generator=generator) > 0.6).float().triu(1)
    )
    return nodes, upper + upper.mT


def test_score_and_choice_equal_pytorch_geometric():
    score, reference = (
        NodeScore(UNITS),
        SAGPooling(UNITS, ratio=KEPT / POOLED_ROIS),
    )
    nn.init.normal_(score.heard.bias)
    # One number whose sign alone counts, and which the convolution can learn by itself.
    nn.init.ones_(reference.select.weight)
    reference.gnn.lin_root.weight.data.copy_(score.own.weight)
    reference.gnn.lin_rel.load_state_dict(score.heard.state_dict())
    nodes, adjacency = pooled_graphs()
    ours = score(nodes, Laplacian.of(adjacency))
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
    nodes, _ = pooled_graphs()
    weight = torch.randn(POOLED, KEPT, UNITS, generator=torch.Generator().manual_seed(2))
    index, place = highest(nodes.sum(-1), KEPT)

    def plain(values):
        return (values[torch.arange(POOLED)[:, None], index] * weight).sum()

    def ours(values, index, place, weight):
        return (take_nodes(values, index, place) * weight).sum()

    assert torch.equal(grad(ours)(nodes, index, place, weight), grad(plain)(nodes))
    assert torch.equal(vmap(grad(ours))(nodes, index, place, weight), grad(plain)(nodes))


def test_both_channels_speak_of_the_same_nodes():
    """Node by node: its features times its score, and the clusters that it belongs to."""
    pooling = LocalGlobalPooling(UNITS, KEPT, 4)
    nodes, adjacency = pooled_graphs(1)
    laplacian = Laplacian.of(adjacency)
    score, logits = pooling.score(nodes, laplacian), pooling.assign(nodes, laplacian)
    # The library's own softmax is the only one here.
    coarse = dense_diff_pool(nodes, adjacency, logits)[0]
    for number, out in enumerate(pooling(nodes, laplacian)):
        kept = score[number].topk(KEPT).indices.sort().values.tolist()
        for row, node in zip(out, kept):
            expected = nodes[number, node] * score[number, node]
            expected = expected + logits[number, node].softmax(-1) @ coarse[number]
            torch.testing.assert_close(row, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("before", [3, 20])
def test_gradients_of_what_clusters_share_are_those_of_plain_products(before):
    draw = torch.Generator().manual_seed(0)
    logits, nodes, slope = (
        torch.randn(2, 3, 11, size, generator=draw).double() for size in (6, before, before)
    )

    def plain(logits, nodes):
        assignment = logits.softmax(-1)
        return assignment @ (assignment.mT @ nodes)

    def slopes(function):
        def total(logits, nodes):
            return (function(logits, nodes) * slope[0]).sum()

        return vmap(grad(total, argnums=(0, 1)))(logits, nodes)

    for ours, expected in zip(slopes(shared_by_clusters), slopes(plain)):
        torch.testing.assert_close(ours, expected)
