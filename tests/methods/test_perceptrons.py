"""Linear layers of many rows."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core.methods.layers.perceptrons import row_linear
from brio_core.system.devices import float32_products


@pytest.mark.parametrize("shape", [(5,), (7, 9), (4, 128), (17, 61)])
@pytest.mark.parametrize("experts", [(), (2,)])
def test_rows_meet_a_weight_and_its_gradient_sums_over_them(shape, experts):
    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(3, *experts, *shape, 6, generator=draw).double()
    weight = torch.randn(3, *experts, 4, 6, generator=draw).double()
    slope = torch.randn(*experts, *shape, 4, generator=draw).double()

    def plain(rows, weight):
        ones = [1] * (len(shape) - 1)
        return rows @ weight.mT.view(*experts, *ones, 6, 4)

    def slopes(function):
        def total(rows, weight):
            return (function(rows, weight).square() * slope).sum()

        return vmap(grad(total, argnums=(0, 1)))(rows, weight)

    torch.testing.assert_close(vmap(row_linear)(rows, weight), vmap(plain)(rows, weight))
    for found, expected in zip(slopes(row_linear), slopes(plain)):
        torch.testing.assert_close(found, expected)


def test_data_needs_no_gradient_and_rows_may_be_shared_or_strided():
    weight = torch.randn(3, 4, 6, requires_grad=True)
    rows = torch.randn(6, 50).mT
    out = vmap(row_linear, in_dims=(None, 0))(rows, weight)
    out.sum().backward()
    torch.testing.assert_close(out, rows @ weight.mT)
    torch.testing.assert_close(weight.grad, rows.sum(0).expand(3, 4, 6))


@pytest.mark.parametrize("asked, exact, used", [
    (False, False, "high"), (False, True, "highest"), (True, False, "highest"),
])  # fmt: skip
def test_products_are_exact_where_that_is_asked_for_also_on_the_way_back(
    asked, exact, used, monkeypatch
):
    seen, real = [], torch.bmm
    monkeypatch.setattr(
        torch, "bmm", lambda *ab: seen.append(torch.get_float32_matmul_precision()) or real(*ab)
    )
    rows, weight = (torch.ones(2, 6, requires_grad=True) for _ in range(2))
    with float32_products(asked):
        value = row_linear(rows, weight, exact).sum()
    # Whatever holds by then.
    with float32_products(not asked):
        value.backward()
    assert seen == 3 * [used]
