"""Fused layers with dropout, and the choice of the strongest edges, against their plain twins."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.func import grad, vmap
from torch.nn import functional

from brio_core.connectivity.graphs import symmetric_top
from brio_core.methods.brainnettf import dropout_norm, relu_dropout

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
KEYS = torch.tensor([5, 6, 123456789012])


def compare(function, tensors):
    """Values and gradients of a function of (*tensors, key), for three folds, on both devices."""

    def total(*arguments):
        result = function(*arguments)
        slope = torch.arange(1.0, result.shape[-1] + 1, device=result.device)
        return (result.square() * slope).sum()

    positions = tuple(range(len(tensors)))
    found = []
    for device in ("cpu", "cuda"):
        arguments = [tensor.to(device) for tensor in (*tensors, KEYS)]
        slopes = vmap(grad(total, argnums=positions))(*arguments)
        found.append([vmap(function)(*arguments).cpu(), *(slope.cpu() for slope in slopes)])
    for plain, fused in zip(*found):
        assert (plain - fused).abs().max() < 2e-5 * plain.abs().max()


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("width", [1, 16, 200, 1024])
def test_relu_dropout_equals_plain_torch_in_value_and_gradient(width):
    torch.manual_seed(0)
    values, bias = torch.randn(3, 5, 33, width), torch.randn(3, width)
    compare(lambda values, bias, key: relu_dropout(values, bias, 0.3, key, 3), [values, bias])


class Norm(NamedTuple):
    """A LayerNorm that is made inside a mapped function."""

    weight: Tensor
    bias: Tensor
    eps: float = 1e-5

    def __call__(self, nodes):
        return functional.layer_norm(nodes, self.bias.shape, self.weight, self.bias, self.eps)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("width", [7, 64, 116, 200])
def test_dropout_norm_equals_plain_torch_in_value_and_gradient(width):
    torch.manual_seed(0)

    def function(hidden, values, bias, weight, shift, key):
        return dropout_norm(hidden, values, bias, Norm(weight, shift), 0.3, key, 3)

    nodes = [torch.randn(3, 4, 151, width) for _ in range(2)]
    compare(function, [*nodes, *(torch.randn(3, width) for _ in range(3))])


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("n_rois", [5, 24, 116, 200, 400])
@pytest.mark.parametrize("density", [0.01, 0.2, 1.0])
def test_strongest_edges_are_the_same_on_both_devices(n_rois, density):
    torch.manual_seed(0)
    strength = torch.rand(3, 4, n_rois, n_rois)
    # Ties, zeros of either sign, and numbers below the normal range.
    strength[0] = (strength[0] * 4).round() / 4
    strength[1, 0], strength[1, 1] = 0.0, -0.0
    strength[1, 2] *= 1e-40
    found = [vmap(lambda one: symmetric_top(one, density))(strength.to(d)) for d in ("cpu", "cuda")]
    assert torch.equal(found[0], found[1].cpu())
