"""FC-HGNN's encoder of single brains: hemispheres apart, then together."""

import numpy as np
import pytest
import torch
from synthetic import settings_of
from torch.nn.functional import leaky_relu
from torch_geometric.nn import GCNConv

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import normalised_adjacency
from brio_core.methods.fc_hgnn import FcHgnn
from brio_core.methods.fc_hgnn.brain import BrainEncoder, hemispheres

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
    within = encoder.within(fc, weights)
    inside = group[:, None] == group
    assert not torch.equal(weights, weights * inside)
    torch.testing.assert_close(within, encoder.within(fc, weights * inside))


@pytest.mark.parametrize("sizes", [(6, 6, 0), (5, 4, 3)])
def test_without_fc_inside_the_left_hemisphere_the_right_stays_as_it_is(sizes):
    encoder, fc, weights = encoder_and_graphs(sizes)
    is_left = torch.arange(N_ROIS) < sizes[0]
    elsewhere = ~(is_left[:, None] & is_left)
    within = encoder.within(fc, weights)
    without = encoder.within(fc * elsewhere, weights * elsewhere)
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

    within, whole = encoder.within(fc, weights), encoder(fc, weights > 0)
    for x, graph, first, last in zip(fc, weights, within, whole):
        for layer in (encoder.first, encoder.second):
            left = convolve(layer.left, x[:6], graph[:6, :6])
            right = convolve(layer.right, x[6:], graph[6:, 6:])
            x = leaky_relu(torch.cat([left, right]))
        torch.testing.assert_close(first, x, rtol=0, atol=1e-5)
        across = leaky_relu(convolve(encoder.across, x, graph))
        pooled = encoder.pooling(across[None], (graph > 0).double()[None]).flatten()
        torch.testing.assert_close(last, pooled, rtol=0, atol=1e-5)


def test_midline_rows_are_the_mean_of_both_weights():
    encoder, fc, weights = encoder_and_graphs((5, 5, 2))
    parts, layer = list(fc.split((5, 5, 2), -2)), encoder.first
    operator = normalised_adjacency(weights[:, 10:, 10:])
    left, right = (
        operator @ (parts[2] @ side.weight.T) + side.bias for side in (layer.left, layer.right)
    )
    torch.testing.assert_close(layer(parts, weights)[:, 10:], (left + right) / 2)


def test_hemispheres_come_from_labels_then_centroids_then_halves():
    unknown = np.full((5, 3), np.nan, np.float32)
    centroids = np.array([[-1, 0, 0], [2, 0, 0], [0, 0, 0], [-3, 0, 0], [4, 0, 0]], np.float32)
    names, nothing = tuple("abcde"), ("n/a",) * 5
    labelled = Rois(names, centroids, ("R", "L", "n/a", "R", "L"))
    assert hemispheres(labelled).tolist() == [1, 0, 2, 1, 0]
    assert hemispheres(Rois(names, centroids, nothing)).tolist() == [0, 1, 1, 0, 1]
    assert hemispheres(Rois(names, unknown, nothing)).tolist() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("n_rois", "kept", "clusters", "width"),
    [(24, 22, 12, 440), (116, 105, 58, 2100), (200, 180, 100, 3600)],
)
def test_sizes_of_the_pooling(n_rois, kept, clusters, width):
    model = FcHgnn(settings_of("fc-hgnn"), n_rois, 3)
    assert model.brain.pooling.kept == kept
    assert model.brain.pooling.assign.out_features == clusters
    assert model.brain.width == width
