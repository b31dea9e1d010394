"""The tangent space against nilearn and closed forms."""

import numpy as np
import pytest
import torch

from brio_core.connectivity import tangent
from brio_core.connectivity.tangent import ledoit_wolf, log_vectors, tangent_space
from brio_core.system.threads import spread


def made_up_scans(count=14, rois=9, seed=0, shortest=7):
    """Correlated series, some shorter than there are ROIs."""
    generator = np.random.default_rng(seed)
    mixing = generator.standard_normal((rois, rois))
    scans = []
    for length in generator.integers(shortest, 60, size=count):
        own = mixing + generator.standard_normal(mixing.shape)
        scans.append(generator.standard_normal((length, rois)) @ own)
    return scans


def padded(scans):
    longest = max(map(len, scans))
    series = torch.zeros(len(scans), longest, scans[0].shape[1], dtype=torch.float64)
    for row, scan in zip(series, scans):
        row[: len(scan)] = torch.as_tensor(scan)
    return series, torch.tensor([len(scan) for scan in scans])


def z_scored(scan):
    return (scan - scan.mean(0)) / scan.std(0)


def made_up_covariances(count, rois, spread, seed=0):
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(count, rois, rois, generator=generator, dtype=torch.float64)
    return torch.linalg.matrix_exp(spread * (noise + noise.mT))


def over(covariances, size=16):
    """What calls a function for all matrices, a few at a time and several times at once."""
    starts = range(0, len(covariances), size)
    parts = [slice(start, min(start + size, len(covariances))) for start in starts]
    return lambda work: spread(
        lambda rows: work(rows, covariances[rows]), parts, covariances.device
    )


def fitted(covariances, dtype=torch.float64, size=16, **options):
    """The whitening and the vectors of a tangent space."""
    rois = covariances.shape[-1]
    vectors = torch.empty(len(covariances), rois * (rois + 1) // 2, dtype=dtype)
    return tangent_space(over(covariances, size), vectors, **options), vectors


def power(matrix, exponent):
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values**exponent) @ vectors.T


def test_ledoit_wolf_equals_scikit_learn():
    covariance = pytest.importorskip("sklearn.covariance")
    scans = made_up_scans()
    ours = ledoit_wolf(*padded(scans))
    for scan, matrix in zip(scans, ours):
        np.testing.assert_allclose(matrix, covariance.ledoit_wolf(z_scored(scan))[0], atol=1e-12)


def test_ledoit_wolf_ignores_padding_units_and_offsets():
    series, frames = padded(made_up_scans())
    ours = ledoit_wolf(series, frames)
    beyond = torch.arange(series.shape[1])[:, None] >= frames[:, None, None]
    torch.testing.assert_close(ledoit_wolf(series.masked_fill(beyond, 7.0), frames), ours)
    torch.testing.assert_close(ledoit_wolf(30 * series + 5, frames), ours)


def test_a_constant_roi_leaves_the_covariance_positive_definite():
    series, frames = padded(made_up_scans())
    series[:, :, 3] = 2.0
    assert float(torch.linalg.eigvalsh(ledoit_wolf(series, frames)).min()) > 0


def test_tangent_vectors_equal_nilearn():
    connectome = pytest.importorskip("nilearn.connectome")
    scans = [z_scored(scan) for scan in made_up_scans(count=24)]
    train, test = scans[:16], scans[16:]
    measure = connectome.ConnectivityMeasure(
        kind="tangent", vectorize=True, discard_diagonal=False, standardize=False
    )
    expected = measure.fit_transform(train)
    whitening, vectors = fitted(ledoit_wolf(*padded(train)), tolerance=1e-12)
    np.testing.assert_allclose(vectors, expected, atol=2e-5)
    np.testing.assert_allclose(
        log_vectors(ledoit_wolf(*padded(test)), whitening), measure.transform(test), atol=2e-5
    )


@pytest.mark.parametrize("spread", [0.05, 0.3, 1.0])
def test_the_mean_tangent_vector_is_zero(spread):
    covariances = made_up_covariances(20, 8, spread)
    whitening, vectors = fitted(covariances, tolerance=1e-10)
    assert float(vectors.mean(0).norm()) < 64e-10
    torch.testing.assert_close(log_vectors(covariances, whitening), vectors)


def test_the_geometric_mean_of_two_matrices_has_a_closed_form():
    first, second = made_up_covariances(2, 6, 0.4)
    root, inverse = power(first, 0.5), power(first, -0.5)
    expected = root @ power(inverse @ second @ inverse, 0.5) @ root
    whitening, _ = fitted(torch.stack([first, second]), tolerance=1e-12)
    torch.testing.assert_close(power(whitening, -2), expected, rtol=1e-8, atol=1e-8)


def test_the_geometric_mean_of_commuting_matrices_is_that_of_their_eigenvalues():
    generator = torch.Generator().manual_seed(0)
    values = torch.rand(9, 6, generator=generator, dtype=torch.float64) + 0.1
    basis = torch.linalg.qr(torch.randn(6, 6, generator=generator, dtype=torch.float64)).Q
    whitening, _ = fitted(basis @ torch.diag_embed(values) @ basis.T, tolerance=1e-12)
    expected = basis @ torch.diag(values.log().mean(0).exp()) @ basis.T
    torch.testing.assert_close(power(whitening, -2), expected, rtol=1e-8, atol=1e-8)


def test_vectors_keep_the_norm_up_to_one_factor():
    covariances = made_up_covariances(3, 5, 0.3)
    vectors = log_vectors(covariances, torch.eye(5, dtype=torch.float64))
    logs = torch.stack(
        [torch.linalg.eigh(one)[1] * torch.linalg.eigh(one)[0].log() for one in covariances]
    )
    torch.testing.assert_close(vectors.norm(dim=1) * 2**0.5, logs.flatten(1).norm(dim=1))


def test_it_needs_few_iterations(monkeypatch):
    covariances = ledoit_wolf(*padded(made_up_scans(count=40, rois=12, shortest=30)))
    calls = []
    original = tangent.log_vectors
    monkeypatch.setattr(tangent, "log_vectors", lambda *given: calls.append(0) or original(*given))
    fitted(covariances, size=len(covariances))
    assert len(calls) <= 7


def test_a_mean_that_does_not_converge_is_said_to_be_so():
    with pytest.warns(UserWarning, match="not converged in 1 iterations"):
        fitted(made_up_covariances(5, 4, 0.3), iterations=1)


def test_the_number_of_threads_neither_changes_bytes_nor_is_changed():
    covariances = made_up_covariances(40, 8, 0.2)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = fitted(covariances)
        torch.set_num_threads(2)
        together = fitted(covariances)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    for one, other in zip(alone, together):
        assert torch.equal(one, other)


def test_the_same_matrices_always_give_the_same_bytes():
    covariances = made_up_covariances(40, 8, 0.2)
    _, first = fitted(covariances)
    for repeat in range(100):
        kept = torch.full((7 * repeat + 3,), torch.nan)  # another state of the memory each time
        _, again = fitted(covariances)
        assert torch.equal(first, again), (repeat, len(kept))


@pytest.mark.parametrize("size", [1, 7, 300])
def test_how_many_matrices_come_at_a_time_does_not_matter(size):
    covariances = made_up_covariances(300, 6, 0.2)
    for one, other in zip(fitted(covariances), fitted(covariances, size=size)):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_single_precision_suffices_for_the_vectors():
    covariances = made_up_covariances(300, 6, 0.2)
    whitening, vectors = fitted(covariances)
    coarse_whitening, coarse_vectors = fitted(covariances, dtype=torch.float32)
    torch.testing.assert_close(coarse_whitening, whitening, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(coarse_vectors.double(), vectors, rtol=1e-5, atol=1e-5)


def test_log_vectors_run_under_vmap():
    covariances, whitenings = made_up_covariances(6, 5, 0.2), made_up_covariances(3, 5, 0.1, seed=1)
    mapped = torch.func.vmap(log_vectors, in_dims=(None, 0))(covariances, whitenings)
    for index, whitening in enumerate(whitenings):
        torch.testing.assert_close(mapped[index], log_vectors(covariances, whitening))
