"""Supports and graphs against loops over ROIs."""

import math

import numpy as np
import pytest
import torch

from brio_core.connectivity.graphs import (
    neighbours_per_roi,
    node_descriptor,
    normalised_adjacency,
    propagate,
    propagation_support,
    signed_graph,
    subject_graph,
    true_median,
)


def slow_top(strength: np.ndarray, m: int) -> np.ndarray:
    n_rois = len(strength)
    support = np.zeros((n_rois, n_rois), bool)
    for u in range(n_rois):
        others = sorted((v for v in range(n_rois) if v != u), key=lambda v: (-strength[u, v], v))
        for v in others[:m]:
            support[u, v] = support[v, u] = True
    return support


def random_fc(n: int, n_rois: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    fc = torch.randn(n, n_rois, n_rois, generator=generator, dtype=torch.float64)
    fc = (fc + fc.mT) / 2
    return fc * ~torch.eye(n_rois, dtype=torch.bool)


@pytest.mark.parametrize("n_rois, m", [(116, 23), (200, 40), (24, 5), (101, 20), (2, 1)])
def test_neighbours_per_roi(n_rois, m):
    assert neighbours_per_roi(n_rois, 0.20) == m


def test_neighbours_per_roi_is_safe_against_rounding():
    assert math.ceil(0.07 * 100) == 8
    assert neighbours_per_roi(101, 0.07) == 7
    assert neighbours_per_roi(11, 1.0) == 10


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_median_averages_the_middle(count):
    values = torch.randn(count, 6, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(true_median(values, 0), np.median(values, 0), rtol=1e-6)


@pytest.mark.parametrize("density", [0.1, 0.2, 0.55, 1.0])
def test_support_equals_the_slow_reading(density):
    fc, site = random_fc(23, 12), torch.tensor([3] * 4 + [1] * 5 + [7] * 8 + [0] * 6)
    site = site[torch.randperm(23, generator=torch.Generator().manual_seed(1))]
    per_site = [np.median(np.abs(fc[site == e].numpy()), 0) for e in (0, 1, 3, 7)]
    strength = np.median(per_site, 0)
    support = propagation_support(fc, site, density)
    assert support.dtype == torch.bool
    np.testing.assert_array_equal(support, slow_top(strength, math.ceil(density * 11)))
    assert torch.equal(support, support.T) and not support.diagonal().any()
    assert torch.equal(support, propagation_support(fc.float(), site, density))


def test_support_takes_the_median_within_sites_first():
    # Pooled over subjects, the five of site 0 would decide; over sites they are one of three.
    fc = torch.zeros(7, 3, 3)
    fc[:, 0, 1] = fc[:, 1, 0] = torch.tensor([5.0, 5, 5, 5, 5, 0, 0])
    fc[:, 0, 2] = fc[:, 2, 0] = torch.tensor([0.0, 0, 0, 0, 0, 1, 1])
    fc[:, 1, 2] = fc[:, 2, 1] = 0.5
    support = propagation_support(fc, torch.tensor([0, 0, 0, 0, 0, 1, 2]), 0.2)
    assert support[0].tolist() == [False, False, True]


def test_ties_go_to_the_lower_index():
    fc = torch.ones(1, 6, 6) * ~torch.eye(6, dtype=torch.bool)
    np.testing.assert_array_equal(
        propagation_support(fc, torch.zeros(1), 0.4), slow_top(fc[0].numpy(), 2)
    )
    np.testing.assert_array_equal(subject_graph(fc, 0.4)[0], slow_top(fc[0].numpy(), 2))
    fc = torch.randint(-2, 3, (20, 9, 9), generator=torch.Generator().manual_seed(0)).float()
    fc = fc.triu(1) + fc.triu(1).mT
    for one, graph in zip(fc, subject_graph(fc, 0.3), strict=True):
        np.testing.assert_array_equal(graph, slow_top(one.abs().numpy(), math.ceil(0.3 * 8)))


def test_permuting_rois_permutes_and_permuting_subjects_does_nothing():
    fc, site = random_fc(12, 10), torch.arange(12) % 3
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    support = propagation_support(fc, site)
    permuted = propagation_support(fc[:, order][:, :, order], site)
    assert torch.equal(permuted, support[order][:, order])
    subjects = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    assert torch.equal(support, propagation_support(fc[subjects], site[subjects]))
    graph, permuted = signed_graph(fc, support), signed_graph(fc[:, order][:, :, order], permuted)
    torch.testing.assert_close(permuted, graph[..., order, :][..., order])


def test_signed_graph_and_descriptor_equal_the_slow_reading():
    fc = random_fc(3, 8)
    fc[0, 2] = fc[0, 2].abs()
    fc[0, :, 2] = fc[0, 2]
    support = propagation_support(fc, torch.zeros(3), 0.3)
    support[5] = support[:, 5] = False
    graphs, descriptors = signed_graph(fc, support), node_descriptor(fc, support)
    assert graphs.shape == (3, 2, 8, 8) and descriptors.shape == (3, 8, 3)
    for i in range(3):
        weights = fc[i].numpy() * support.numpy()
        for channel, part in enumerate((np.maximum(weights, 0), np.maximum(-weights, 0))):
            for u in range(8):
                for v in range(8):
                    degrees = part[u].sum() * part[v].sum()
                    expected = part[u, v] / math.sqrt(degrees) if degrees > 0 else 0
                    assert graphs[i, channel, u, v] == pytest.approx(expected, abs=1e-12)
        for u in range(8):
            degree = max(1, int(support[u].sum()))
            expected = [
                np.maximum(weights[u], 0).sum() / degree,
                np.maximum(-weights[u], 0).sum() / degree,
                math.sqrt((weights[u] ** 2).sum() / degree),
            ]
            np.testing.assert_allclose(descriptors[i, u], expected, atol=1e-12)
    assert (graphs[0, 1, 2] == 0).all()


def test_folds_may_be_a_leading_axis():
    fc, site = random_fc(8, 7), torch.arange(8) % 2
    supports = torch.stack([propagation_support(fc[:4], site[:4]), propagation_support(fc, site)])
    graphs = signed_graph(fc, supports[:, None])
    descriptors = node_descriptor(fc, supports[:, None])
    mapped = torch.func.vmap(signed_graph, (None, 0))(fc, supports)
    assert torch.equal(graphs, mapped)
    for fold, support in enumerate(supports):
        assert torch.equal(graphs[fold], signed_graph(fc, support))
        assert torch.equal(descriptors[fold], node_descriptor(fc, support))


def test_normalised_adjacency():
    weights = random_fc(2, 5).abs()
    weights[0, 3] = weights[0, :, 3] = 0
    adjacency = normalised_adjacency(weights)
    for i in range(2):
        with_self = weights[i].numpy() + np.eye(5)
        root = np.diag(with_self.sum(1) ** -0.5)
        np.testing.assert_allclose(adjacency[i], root @ with_self @ root, atol=1e-12)
    assert adjacency[0, 3, 3] == 1


def test_propagation_needs_no_normalised_matrix():
    weights = random_fc(2, 5).abs()
    weights[0, 3] = weights[0, :, 3] = 0
    hidden = random_fc(2, 5, seed=1)
    torch.testing.assert_close(
        propagate(weights, hidden), normalised_adjacency(weights) @ hidden, rtol=0, atol=1e-12
    )
