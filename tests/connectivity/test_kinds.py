"""Kinds of connectivity against scipy and nilearn, and on scans that are hard."""

import numpy as np
import pytest
import scipy.linalg
import scipy.stats
import torch
from sklearn.covariance import EmpiricalCovariance, ShrunkCovariance

from brio_core.connectivity import kinds
from brio_core.connectivity.fisher_z import fisher_z_connectivity


def scan(frames: int = 90, n_rois: int = 12, seed: int = 0) -> np.ndarray:
    """Series of ROIs that share two signals."""
    generator = np.random.default_rng(seed)
    shared = generator.normal(size=(frames, 2)) @ generator.normal(size=(2, n_rois))
    return shared + generator.normal(size=(frames, n_rois))


def off_diagonal(matrix: np.ndarray) -> np.ndarray:
    return matrix[~np.eye(len(matrix), dtype=bool)]


def found(series: np.ndarray, kind: str, shrinkage: float) -> np.ndarray:
    z = fisher_z_connectivity(torch.as_tensor(series))
    return kinds.connectivity_of(z, kind, shrinkage).numpy()


@pytest.mark.parametrize("shrinkage", [0.1, 0.6, 1.0])
def test_logarithm_is_scipys(shrinkage):
    series = scan()
    shrunk = (1 - shrinkage) * np.corrcoef(series.T) + shrinkage * np.eye(12)
    expected = off_diagonal(scipy.linalg.logm(shrunk))
    got = found(series, kinds.LOGARITHM, shrinkage)
    np.testing.assert_allclose(off_diagonal(got), expected, atol=1e-6)
    assert (np.diagonal(got) == 0).all()


@pytest.mark.parametrize("shrinkage", [0.1, 0.6])
def test_partial_correlation_is_nilearns(shrinkage):
    ConnectivityMeasure = pytest.importorskip("nilearn.connectome").ConnectivityMeasure
    series = scan()
    # With standardised series, scikit-learn shrinks towards the identity too.
    estimator = ShrunkCovariance(shrinkage=shrinkage)
    measure = ConnectivityMeasure(estimator, kind="partial correlation", standardize=False)
    expected = measure.fit_transform([scipy.stats.zscore(series)])[0]
    got = found(series, kinds.PARTIAL, shrinkage)
    np.testing.assert_allclose(off_diagonal(got), off_diagonal(expected), atol=1e-6)


def test_fisher_z_is_that_of_nilearns_correlation():
    ConnectivityMeasure = pytest.importorskip("nilearn.connectome").ConnectivityMeasure
    series = scan()
    measure = ConnectivityMeasure(EmpiricalCovariance(), kind="correlation", standardize=False)
    expected = np.arctanh(off_diagonal(measure.fit_transform([series])[0]))
    got = found(series, kinds.FISHER_Z, 0.6)
    np.testing.assert_allclose(off_diagonal(got), expected, atol=1e-6)


def test_fisher_z_is_left_alone():
    z = fisher_z_connectivity(torch.as_tensor(scan()))
    assert kinds.connectivity_of(z, kinds.FISHER_Z, 0.6) is z


@pytest.mark.parametrize("kind", [kinds.LOGARITHM, kinds.PARTIAL])
def test_hard_scans_are_defined(kind):
    """Fewer frames than ROIs, a constant ROI, two identical ROIs: finite, and zero where due."""
    series = scan(frames=8)
    series[:, 3] = 5.0
    series[:, 5] = series[:, 4]
    got = found(series.astype(np.float32), kind, 0.3)
    assert got.dtype == np.float32
    assert np.isfinite(got).all()
    assert np.abs(got[3]).max() < 1e-12 and np.abs(got[:, 3]).max() < 1e-12
    np.testing.assert_allclose(got, got.T, atol=1e-7)


@pytest.mark.parametrize("n_rois, shrinkage", [(12, 0.6), (60, 0.3), (200, 0.6)])
def test_polynomials_agree_with_eigenvectors(n_rois, shrinkage):
    """A GPU takes these; nearly identical ROIs are the hardest case."""
    alike = scan(frames=60, n_rois=n_rois) * 0.02 + scan(frames=60, n_rois=1, seed=1)
    series = torch.as_tensor(np.stack([scan(frames=60, n_rois=n_rois), alike]))
    matrix = kinds.shrunk_correlation(fisher_z_connectivity(series), shrinkage)
    for function in (kinds.logarithm, kinds.inverse):
        expected = function(matrix, shrinkage)
        got = polynomial(function, matrix, shrinkage)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-7)


def polynomial(function, matrix, lowest):
    """What ``function`` computes where it takes no eigenvectors."""
    chosen = {}

    def keep(matrix, lowest, *series):
        chosen["series"] = series

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds, "chebyshev", keep)
        function(torch.empty(1, 1, device="meta"), lowest)
    return kinds.chebyshev(matrix, lowest, *chosen["series"])


def test_kinds_work_under_vmap_and_in_batches():
    z = fisher_z_connectivity(torch.as_tensor(np.stack([scan(seed=seed) for seed in range(3)])))
    for kind in (kinds.LOGARITHM, kinds.PARTIAL):
        together = kinds.connectivity_of(z, kind, 0.6)
        mapped = torch.func.vmap(lambda one, kind=kind: kinds.connectivity_of(one, kind, 0.6))(z)
        torch.testing.assert_close(mapped, together)
        torch.testing.assert_close(kinds.connectivity_of(z[1], kind, 0.6), together[1])


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [kinds.LOGARITHM, kinds.PARTIAL])
def test_a_gpu_gives_what_a_cpu_gives(kind):
    z = torch.stack(
        [fisher_z_connectivity(torch.as_tensor(scan(frames, 200))) for frames in (40, 90)]
    )
    expected = kinds.connectivity_of(z, kind, 0.6)
    torch.testing.assert_close(kinds.connectivity_of(z.cuda(), kind, 0.6).cpu(), expected)
    graph, moved = torch.cuda.CUDAGraph(), z.float().cuda()
    kinds.connectivity_of(moved, kind, 0.6)
    with torch.cuda.graph(graph):
        captured = kinds.connectivity_of(moved, kind, 0.6)
    graph.replay()
    torch.testing.assert_close(captured.cpu().double(), expected, rtol=0, atol=1e-5)
