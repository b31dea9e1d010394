"""Work on tables in blocks against plain torch."""

import pytest
import torch

from brio_core.methods.linear import blocks
from brio_core.methods.linear.blocks import column_means, replace_columns, sweep
from brio_core.system.threads import workers

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


def made_up(n=101, columns=333, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(n, columns, generator=generator, dtype=dtype) + 1000


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_column_means_have_double_precision(dtype):
    table = made_up(dtype=dtype)
    torch.testing.assert_close(column_means(table), table.double().mean(0), rtol=1e-14, atol=0)


def test_means_of_blocks_are_those_of_the_table_to_the_byte(threads):
    threads(1)
    table = made_up(900, dtype=torch.float64)
    assert torch.equal(column_means(table), table.mean(0))


def test_columns_are_replaced_by_what_a_function_makes_of_them():
    table, offset = made_up(), torch.arange(333).double()
    expected = (table.double() - offset).float()
    replace_columns(table, lambda columns, values: values - offset[columns])
    assert torch.equal(table, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 101])
def test_a_sweep_is_two_products(dtype, n):
    table = made_up(n)
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
    table, sides = made_up(), torch.randn(101, 3).double()
    with workers(CPU) as run:
        empty = torch.empty(333, 0, dtype=torch.float64)
        _, back = sweep(run, table, empty, lambda rows, _: sides[rows])
    torch.testing.assert_close(back, table.double().T @ sides)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_number_of_threads_changes_no_bytes(threads, dtype):
    table, vectors = made_up(1000, 500), torch.randn(500, 1, dtype=dtype)
    results = []
    for count in (1, 2, 5):
        threads(count)
        with workers(CPU) as run:
            results.append((*sweep(run, table, vectors, lambda _, part: part), column_means(table)))
        assert torch.get_num_threads() == count
    for other in results[1:]:
        assert all(torch.equal(one, two) for one, two in zip(results[0], other))
