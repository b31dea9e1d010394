"""Huber regressions against a slow reference, least squares, and what makes columns useless."""

import numpy as np
import torch

from brio_core.methods.core.huber import full_precision, huber_regression, swept_inverse


def make(n=40, edges=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    label = (torch.arange(n) % 2).float()
    columns = torch.stack([torch.ones(n), label, torch.randn(n, generator=generator)], 1)
    values = torch.randn(edges, n, generator=generator) + 0.8 * label
    return values, columns


def reference(values, design, iterations=10):
    """One outcome in float64, as it stands in a textbook."""
    y, x = values.double().numpy(), design.double().numpy()
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    for _ in range(iterations):
        residual = np.abs(y - x @ beta)
        scale = max(np.median(residual) / 0.6745, 1e-6)
        weight = np.minimum(1, 1.345 * scale / np.maximum(residual, 1e-300))
        inverse = np.linalg.inv(x.T @ (weight[:, None] * x) + 1e-6 * np.eye(x.shape[1]))
        beta = inverse @ x.T @ (weight * y)
    return beta, scale**2 * np.diag(inverse)


def test_all_outcomes_at_once_equal_one_after_the_other():
    values, design = make()
    values[0, 3] += 30
    draws = torch.randint(40, (3, 40), generator=torch.Generator().manual_seed(1))
    found, variance = huber_regression(values.T[draws].mT.contiguous(), design[draws])
    assert found.shape == variance.shape == (3, 3, 6)
    for sample, draw in enumerate(draws):
        for edge in range(6):
            beta, squared = reference(values[edge, draw], design[draw])
            np.testing.assert_allclose(found[sample, :, edge], beta, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(variance[sample, :, edge], squared, rtol=1e-3)


def test_an_outlier_hardly_moves_the_effect():
    values, design = make()
    clean = huber_regression(values[None], design[None])[0][0, 1]
    values[:, 5] += 1000
    dirty = huber_regression(values[None], design[None])[0][0, 1]
    assert (clean - dirty).abs().max() < 0.3
    squares = torch.linalg.lstsq(design, values.T).solution[1]
    assert (clean - squares).abs().min() > 10


def test_a_column_that_others_explain_is_left_out():
    values, design = make()
    doubled = torch.cat([design, 2 - 3 * design[:, 1:2]], 1)
    plain, variance = huber_regression(values[None], design[None])
    found, more = huber_regression(values[None], doubled[None])
    torch.testing.assert_close(found[0, :3], plain[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(more[0, :3], variance[0], rtol=1e-3, atol=1e-5)
    assert not found[0, 3].any() and not more[0, 3].any()


def test_an_outcome_that_never_varies_has_no_effect():
    _, design = make()
    found, variance = huber_regression(torch.zeros(1, 2, 40), design[None])
    assert not found.any() and (variance > 0).all() and (variance < 1e-11).all()


def test_sweeping_inverts():
    generator = torch.Generator().manual_seed(0)
    roots = torch.randn(7, 4, 4, generator=generator, dtype=torch.float64)
    gram = roots @ roots.mT + torch.eye(4)
    before = gram.clone()
    inverse = swept_inverse(gram.permute(1, 2, 0)).permute(2, 0, 1)
    torch.testing.assert_close(inverse, torch.linalg.inv(gram))
    assert torch.equal(gram, before)


def test_precision_is_given_back():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    with full_precision():
        assert torch.get_float32_matmul_precision() == "highest"
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision(before)
