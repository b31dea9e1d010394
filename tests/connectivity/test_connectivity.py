"""Connectivity against a reading of its definition, one pair of ROIs at a time."""

import numpy as np
import pytest
import torch

from brio_core.connectivity.fisher_z import LARGEST_CORRELATION, fisher_z, fisher_z_connectivity


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
