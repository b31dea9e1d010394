"""Connectivity and graphs."""

import math

import numpy as np
import pytest
import torch

from brio_core.connectivity.fisher_z import LARGEST_CORRELATION, fisher_z, fisher_z_connectivity
from brio_core.connectivity.graphs import (
    neighbours_per_roi,
    node_descriptor,
    normalised_adjacency,
    propagation_support,
    signed_graph,
    subject_graph,
    true_median,
)


def slow_connectivity(series: np.ndarray) -> np.ndarray:
    series = np.array([frame for frame in series.astype(np.float64) if np.isfinite(frame).all()])
    n_rois = series.shape[1]
    connectivity = np.zeros((n_rois, n_rois))
    for u in range(n_rois):
        for v in range(n_rois):
            x, y = series[:, u], series[:, v]
            if u == v or np.ptp(x) == 0 or np.ptp(y) == 0:
                continue
            r = np.sum((x - x.mean()) * (y - y.mean())) / np.sqrt(
                np.sum((x - x.mean()) ** 2) * np.sum((y - y.mean()) ** 2)
            )
            r = min(max(r, -LARGEST_CORRELATION), LARGEST_CORRELATION)
            connectivity[u, v] = 0.5 * np.log((1 + r) / (1 - r))
    return connectivity


@pytest.fixture
def series() -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.standard_normal((60, 7)) @ generator.standard_normal((7, 7)) + 100


@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_equals_the_slow_reading(series, dtype, tolerance):
    connectivity = fisher_z_connectivity(series.astype(dtype))
    assert connectivity.dtype == dtype
    np.testing.assert_allclose(connectivity, slow_connectivity(series), atol=tolerance)
    assert (np.diag(connectivity) == 0).all()


def test_tensors_and_batches(series):
    batch = torch.from_numpy(np.stack([series, series[::-1] * 3, series**2 / 100]))
    connectivity = fisher_z_connectivity(batch)
    assert isinstance(connectivity, torch.Tensor) and connectivity.shape == (3, 7, 7)
    for one, scan in zip(connectivity, batch, strict=True):
        torch.testing.assert_close(one, fisher_z_connectivity(scan))
    torch.testing.assert_close(connectivity[0], connectivity[1])


def test_frames_with_a_missing_value_are_dropped_for_all_rois(series):
    spoilt = np.stack([series, series])
    spoilt[0, 3, 2] = np.nan
    spoilt[0, 10, 0] = np.inf
    spoilt[1, 40:] = -np.inf
    connectivity = fisher_z_connectivity(spoilt)
    expected = fisher_z_connectivity(np.delete(series, [3, 10], axis=0))
    np.testing.assert_allclose(connectivity[0], expected, atol=1e-12)
    np.testing.assert_allclose(connectivity[1], fisher_z_connectivity(series[:40]), atol=1e-12)


@pytest.mark.parametrize("value", [0.0, 0.1, 1000.1, -3e20])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_constant_roi_has_zeros(series, value, dtype):
    series = series.astype(dtype)
    series[:, 4] = value
    connectivity = fisher_z_connectivity(series)
    assert (connectivity[4] == 0).all() and (connectivity[:, 4] == 0).all()
    assert np.isfinite(connectivity).all() and (connectivity[0, 1:4] != 0).all()


def test_nothing_left_is_zero_not_nan():
    assert (fisher_z_connectivity(np.full((5, 3), np.nan)) == 0).all()
    assert (fisher_z_connectivity(np.ones((1, 3))) == 0).all()


@pytest.mark.parametrize("unit", [1e-30, 1e25])
def test_units_do_not_matter(series, unit):
    scaled = (series.astype(np.float32) * np.float32(unit)).astype(np.float32)
    np.testing.assert_allclose(
        fisher_z_connectivity(scaled), fisher_z_connectivity(series), atol=2e-5
    )


def test_integers_are_accepted():
    series = np.array([[1, 2, 5], [2, 4, 1], [4, 8, 3], [1, 0, 0]])
    np.testing.assert_allclose(fisher_z_connectivity(series), slow_connectivity(series))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_perfect_correlation_stays_finite(dtype):
    z = fisher_z(torch.tensor([-1.0, 1.0, 1.0000001, 0.0], dtype=dtype))
    assert torch.isfinite(z).all() and z[1] == z[2] == -z[0] and z[3] == 0


def test_permuting_rois_permutes(series):
    order = np.random.default_rng(1).permutation(7)
    connectivity = fisher_z_connectivity(series)
    permuted = fisher_z_connectivity(series[:, order])
    np.testing.assert_allclose(permuted, connectivity[np.ix_(order, order)], atol=1e-12)


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
