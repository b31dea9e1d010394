"""Dropout, ends of layers, windows and medians: kernels against their plain torch twins."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import true_median
from brio_core.methods.layers.perceptrons import (
    dropout_gelu,
    dropout_norm,
    relu_dropout,
)
from brio_core.methods.layers.series import standardised_windows
from brio_core.system.randomness import dropout, fold_in

KEYS = torch.tensor([5, 6, 2**62 + 11])


class Norm(NamedTuple):
    """A LayerNorm that is made inside a mapped function."""

    weight: Tensor
    bias: Tensor
    eps: float = 1e-5

    def __call__(self, nodes):
        return functional.layer_norm(nodes, self.bias.shape, self.weight, self.bias, self.eps)


def values_and_slopes(function, tensors, *others):
    def total(*arguments):
        result = function(*arguments)
        slope = torch.arange(1.0, result.shape[-1] + 1, device=result.device)
        return (result.square() * slope).sum()

    arguments = [tensor.cuda() for tensor in (*tensors, *others)]
    slopes = vmap(grad(total, argnums=tuple(range(len(tensors)))))(*arguments)
    return [vmap(function)(*arguments), *slopes]


def compare(function, name, tensors, *others):
    """Values and gradients of three folds with the kernel and with plain torch on the GPU."""
    with kernels.recorded() as used:
        fused = values_and_slopes(function, tensors, *others)
    assert name in used
    with kernels.without(name):
        plain = values_and_slopes(function, tensors, *others)
    for one, other in zip(fused, plain):
        assert (one - other).abs().max() <= 2e-5 * other.abs().max()


@pytest.mark.gpu
@pytest.mark.parametrize("number", [0, 1, 103, 2**31 - 1])
def test_a_key_and_a_number_make_the_same_key_on_a_gpu(number):
    keys = torch.arange(-200, 200) * 0x1234567890AB + 7
    with kernels.recorded() as used:
        together = fold_in(keys.cuda(), number, 5)
        mapped = vmap(lambda key: fold_in(key, number, 5))(keys.cuda())
    assert "fold_in" in used
    assert torch.equal(together.cpu(), fold_in(keys, number, 5))
    assert torch.equal(mapped, together)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(), (3,), (5, 700), (2, 3, 4099)])
@pytest.mark.parametrize("rate", [0.2, 0.3, 0.5])
def test_dropout_equals_plain_torch_bit_for_bit(shape, rate):
    torch.manual_seed(0)
    values = torch.randn(3, *shape)

    def function(values, key):
        return dropout(values, rate, key, 3)

    with kernels.recorded() as used:
        fused = values_and_slopes(function, [values[..., None]], KEYS)
    assert "dropout" in used
    with kernels.without("dropout"):
        plain = values_and_slopes(function, [values[..., None]], KEYS)
    for one, other in zip(fused, plain):
        assert torch.equal(one, other)


@pytest.mark.gpu
def test_dropout_has_second_derivatives():
    values = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)).cuda()

    def slope(values, key):
        return grad(lambda values: dropout(values, 0.3, key).pow(3).sum())(values).square().sum()

    found = vmap(grad(slope))(values, KEYS.cuda())
    with kernels.without("dropout"):
        torch.testing.assert_close(found, vmap(grad(slope))(values, KEYS.cuda()))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [1, 20, 64, 300])
@pytest.mark.parametrize("rate", [0.0, 0.3])
def test_activations_equal_plain_torch(width, rate):
    torch.manual_seed(0)
    values, bias = (torch.randn(3, *shape, width) for shape in ((5, 33), ()))
    for function in (relu_dropout, dropout_gelu):

        def one(values, bias, key, function=function):
            return function(values, bias, rate, key, 3)

        compare(one, function.__name__, [values, bias], KEYS)


@pytest.mark.gpu
@pytest.mark.parametrize("width", [7, 64, 200])
def test_norms_without_dropout_equal_plain_torch(width):
    torch.manual_seed(0)

    def function(hidden, values, bias, weight, shift):
        return dropout_norm(hidden, values, bias, Norm(weight, shift))

    nodes = [torch.randn(3, 4, 151, width) for _ in range(2)]
    own = [torch.randn(3, width) for _ in range(3)]
    compare(function, "dropout_norm", [*nodes, *own])


@pytest.mark.gpu
@pytest.mark.parametrize("count", [1, 2, 7, 48, 65, 131, 1000])
def test_medians_equal_those_of_sorted_rows(count):
    from brio_core.kernels.median import Median

    values = torch.randn(3, 41, count, generator=torch.Generator().manual_seed(0)).abs()
    # Ties, zeros of either sign, numbers below the normal range, and large ones.
    values[0, :5] = (values[0, :5] * 3).round()
    values[1, 0], values[1, 1, : count // 2], values[1, 2] = -0.0, 0.0, values[1, 2] * 1e-40
    values[2, 0] *= 1e37
    assert torch.equal(Median.apply(values.cuda()).cpu(), true_median(values, -1))


@pytest.mark.gpu
@pytest.mark.parametrize(("n_rois", "width"), [(7, 30), (200, 200), (35, 600)])
def test_windows_equal_plain_torch(n_rois, width):
    series = torch.randn(2, 4, 90, n_rois, generator=torch.Generator().manual_seed(0)).cuda()
    frames = torch.tensor([[90, 31, 20, 2], [50, 90, 3, 60]]).cuda()
    start = torch.tensor([[3, 0, 5, 0], [20, 60, 0, 1]]).cuda()
    length = torch.tensor([width, width - 9]).cuda()

    def found():
        return vmap(lambda *given: standardised_windows(*given, width))(
            series, frames, start, length
        )

    with kernels.recorded() as used:
        fused = found()
    assert "windows" in used and fused.is_contiguous()
    with kernels.without("windows"):
        torch.testing.assert_close(fused, found(), rtol=1e-5, atol=2e-5)
