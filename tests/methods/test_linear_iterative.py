"""Iterative linear models against the exact ones."""

import warnings

import pytest
import torch

from brio_core.methods.linear import exact as linear
from brio_core.methods.linear import iterative
from brio_core.system import blocks
from brio_core.system.blocks import column_means, replace_columns, sweep
from brio_core.system.threads import workers

PENALTIES = [1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2]
ALPHAS = [1e6, 1e4, 1e2, 1.0, 1e-2]
SHAPES = [(40, 200), (80, 80), (200, 20)]


def made_up(n, features, seed=0, noise=0.3, offset=0.5):
    """Features of very different size, a third of them correlated, and two classes."""
    generator = torch.Generator().manual_seed(seed)
    design = torch.randn(n, features, generator=generator)
    design[:, : features // 3] += 2 * torch.randn(n, 1, generator=generator)
    design *= torch.logspace(0.5, -1, features)
    score = design[:, 0] / design[:, 0].std() + noise * torch.randn(n, generator=generator)
    return design, (score + offset > 0).long()


def separable(n, features):
    return made_up(n, features, noise=0.0)


def with_a_rare_class(n, features):
    design, label = made_up(n, features)
    rare = torch.zeros_like(label)
    rare[torch.nonzero(label)[:3]] = 1
    return design, rare


def with_constant_columns(n, features):
    design, label = made_up(n, features)
    design[:, ::5] = 0
    return design, label


PROBLEMS = [made_up, separable, with_a_rare_class, with_constant_columns]


def logits(design, path):
    weights, intercepts = path
    return weights @ design.double().T + intercepts[..., None]


def assert_same(found, expected, tolerance):
    """Close in units of the spread of the expected values, and in the same order."""
    spread = expected.std(-1, keepdim=True)
    assert float(((found - expected) / spread).abs().max()) < tolerance
    for one, other in zip(found.flatten(0, -2), expected.flatten(0, -2)):
        apart = (other[:, None] - other) > 2 * tolerance * other.std()
        assert bool(((one[:, None] - one) > 0)[apart].all())


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("n", "features"), SHAPES)
def test_logistic_equals_the_exact_fit(problem, n, features):
    design, label = problem(n, features)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = iterative.logistic_path(design, label, PENALTIES)
    expected = linear.logistic_path(design.double(), label, PENALTIES)
    for strangers in (design, made_up(50, features, seed=1)[0]):
        assert_same(logits(strangers, found), logits(strangers, expected), 1e-3)


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize(("n", "features"), SHAPES)
def test_ridge_equals_the_exact_fit(problem, n, features):
    design, label = problem(n, features)
    sample = torch.rand(n, generator=torch.Generator().manual_seed(3)).double() + 0.1
    scales = torch.stack([torch.ones(features), torch.linspace(0, 1, features)]).double()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = iterative.ridge_grid(design, 2 * label - 1, sample, scales, ALPHAS)
    expected = linear.ridge_grid(design.double(), 2 * label - 1, sample, scales, ALPHAS)[:2]
    for index, scale in enumerate(scales):
        one, other = ([part[index] for part in path] for path in (found, expected))
        for strangers in (design, made_up(50, features, seed=1)[0]):
            assert_same(logits(strangers * scale, one), logits(strangers * scale, other), 1e-4)


def test_a_tiny_c_leaves_the_intercept_at_the_log_odds():
    design, label = made_up(60, 300)
    weights, intercepts = iterative.logistic_path(design, label, [1e-12])
    share = label.double().mean()
    torch.testing.assert_close(intercepts[0], torch.log(share / (1 - share)))
    assert float(weights.abs().max()) < 1e-7


def test_constant_columns_get_no_weight():
    design, label = with_constant_columns(60, 300)
    weights, _ = iterative.logistic_path(design, label, PENALTIES)
    assert not weights[:, ::5].any()
    scales = torch.ones(1, 300).double()
    weights, _ = iterative.ridge_grid(design, 2 * label - 1, torch.ones(60), scales, ALPHAS)
    assert not weights[:, :, ::5].any()


def test_scales_of_zero_leave_the_mean_of_the_target():
    design, label = made_up(60, 300)
    target, scales = 2.0 * label - 1, torch.stack([torch.zeros(300), torch.ones(300)]).double()
    weights, intercepts = iterative.ridge_grid(design, target, torch.ones(60), scales, ALPHAS)
    assert not weights[0].any() and weights[1].all(-1).all()
    torch.testing.assert_close(intercepts[0], target.mean().double().expand(len(ALPHAS)))


@pytest.mark.parametrize("kind", ["logistic", "ridge"])
def test_the_number_of_threads_changes_no_bytes(kind, monkeypatch):
    monkeypatch.setattr(blocks, "ROW_BLOCK", 7000)
    design, label = made_up(400, 300)
    scales = torch.ones(1, 300).double()
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            if kind == "logistic":
                results.append(iterative.logistic_path(design, label, PENALTIES[:3]))
            else:
                results.append(
                    iterative.ridge_grid(design, label, torch.ones(400), scales, ALPHAS[:3])
                )
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other))


def test_a_path_that_is_cut_off_says_so(monkeypatch):
    monkeypatch.setattr(iterative, "MOST_STEPS", 3)
    with pytest.warns(UserWarning, match="C = 100 has not converged"):
        iterative.logistic_path(*made_up(150, 150), [1e2])


def test_a_krylov_space_that_is_cut_off_says_so(monkeypatch):
    monkeypatch.setattr(iterative, "MOST_VECTORS", 4)
    design, label = made_up(150, 150)
    scales = torch.ones(1, 150).double()
    with pytest.warns(UserWarning, match="4 Krylov vectors are too few"):
        weights, _ = iterative.ridge_grid(design, label, torch.ones(150), scales, [1e6, 1e-2])
    exact, *_ = linear.ridge_grid(design.double(), label, torch.ones(150), scales, [1e6, 1e-2])
    # A strong penalty needs few vectors and is not harmed by a weak one beside it.
    torch.testing.assert_close(weights[0, 0], exact[0, 0], rtol=1e-6, atol=1e-12)


CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "COLUMN_BLOCK", 64)
    monkeypatch.setattr(blocks, "ROW_BLOCK", 1000)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def made_up_blocks(n=101, columns=333, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, columns, generator=generator, dtype=dtype) + 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_column_means_have_double_precision(dtype):
    table = made_up_blocks(dtype=dtype)
    torch.testing.assert_close(column_means(table), table.double().mean(0), rtol=1e-14, atol=0)


def test_means_of_blocks_are_those_of_the_table_to_the_byte(threads):
    threads(1)
    table = made_up_blocks(900, dtype=torch.float64)
    assert torch.equal(column_means(table), table.mean(0))


def test_columns_are_replaced_by_what_a_function_makes_of_them():
    table, offset = made_up_blocks(), torch.arange(333).double()
    expected = (table.double() - offset).float()
    replace_columns(table, lambda columns, values: values - offset[columns])
    assert torch.equal(table, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 101])
def test_a_sweep_is_two_products(dtype, n):
    table = made_up_blocks(n)
    vectors = torch.randn(333, 2, generator=torch.Generator().manual_seed(1), dtype=dtype)
    weight = torch.linspace(0, 1, n, dtype=dtype)
    with workers(CPU) as run:
        through, back = sweep(run, table, vectors, lambda rows, part: weight[rows, None] * part)
    wide = table.double()
    expected = wide @ vectors.double()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    assert through.dtype == dtype and back.dtype == torch.float64
    for found, wanted in ((through, expected), (back, wide.T @ (weight[:, None] * expected))):
        largest = float(wanted.abs().max())
        torch.testing.assert_close(found.double(), wanted, rtol=0, atol=tolerance * largest)


def test_a_sweep_without_vectors_is_the_second_product_alone():
    table, sides = made_up_blocks(), torch.randn(101, 3).double()
    with workers(CPU) as run:
        empty = torch.empty(333, 0, dtype=torch.float64)
        _, back = sweep(run, table, empty, lambda rows, _: sides[rows])
    torch.testing.assert_close(back, table.double().T @ sides)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_threads_changes_no_bytes_in_blocks(threads, dtype):
    table, vectors = made_up_blocks(1000, 500), torch.randn(500, 1, dtype=dtype)
    results = []
    for count in (1, 2, 5):
        threads(count)
        with workers(CPU) as run:
            results.append((*sweep(run, table, vectors, lambda _, part: part), column_means(table)))
        assert torch.get_num_threads() == count
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other))
