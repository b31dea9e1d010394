"""Fused kernels against their plain torch twins; the Sinkhorn kernels have tests of their own."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, grad_and_value, vmap
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import symmetric_top
from brio_core.methods.brainnettf import dropout_norm, relu_dropout
from brio_core.methods.gat import DenseGat
from brio_core.methods.xg_gnn.layers import SiteNorm
from brio_core.system.devices import float32_products
from brio_core.system.randomness import uniform


class OnGpu(NamedTuple):
    """What the question for a kernel looks at."""

    dtype: torch.dtype = torch.float32
    is_cuda: bool = True
    size: int = 9

    def numel(self):
        return self.size


def test_kernels_are_not_used_on_the_cpu():
    assert not kernels.usable(torch.zeros(1), "signed")


def test_kernels_can_be_turned_off_and_are_recorded(monkeypatch):
    monkeypatch.setattr(kernels, "_available", lambda: True)
    with kernels.recorded() as used:
        assert kernels.usable(OnGpu(), "attention")
        assert kernels.at_hand(OnGpu(torch.int64), "uniform")
        assert not kernels.usable(OnGpu(torch.float64), "sinkhorn")
        assert not kernels.usable(OnGpu(size=2**31), "sinkhorn")
        with kernels.without("attention"), kernels.without("take"):
            assert not kernels.usable(OnGpu(), "attention") and kernels.usable(OnGpu(), "signed")
        with kernels.without():
            assert not kernels.usable(OnGpu(), "edge_scores")
    assert kernels.usable(OnGpu(), "attention")
    assert used == {"attention", "uniform", "signed"}


def test_kernels_import_nothing_of_ours_but_kernels():
    for path in Path(kernels.__file__).parent.glob("*.py"):
        for line in path.read_text().splitlines():
            if line.strip().startswith(("from brio_core", "import brio_core")):
                assert "kernels" in line, (path, line)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 50, 1000])
def test_residual_norm_equals_plain_torch_in_value_and_gradient(rows):
    from brio_core.kernels.residual_norm import ResidualNorm

    torch.manual_seed(0)
    hidden, own, received = (torch.randn(3, 7, rows, 64, device="cuda") for _ in range(3))
    weight, bias = torch.randn(3, 64, device="cuda"), torch.randn(3, 64, device="cuda")
    slope = torch.arange(64.0, device="cuda")

    def fused(hidden, own, received, weight, bias):
        value = ResidualNorm.apply(hidden, own, received, weight, bias, 1e-5)
        return (value**2 * slope).sum()

    def plain(hidden, own, received, weight, bias):
        value = hidden + functional.gelu(own + received)
        return (functional.layer_norm(value, (64,), weight, bias) ** 2 * slope).sum()

    arguments = (hidden, own, received, weight, bias)
    torch.testing.assert_close(vmap(fused)(*arguments), vmap(plain)(*arguments), rtol=1e-4, atol=0)
    everything = tuple(range(5))
    for one, other in zip(
        vmap(grad(fused, argnums=everything))(*arguments),
        vmap(grad(plain, argnums=everything))(*arguments),
    ):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


@pytest.mark.gpu
def test_take_copies_rows_from_the_host():
    from brio_core.kernels.take import take

    source = torch.randn(50, 7, 123).pin_memory()
    index = torch.randint(50, (80,), device="cuda")
    assert torch.equal(take(source, index), source.cuda()[index])


@pytest.mark.gpu
def test_training_on_the_gpu_repeats_itself_and_follows_the_cpu(tmp_path):
    import numpy as np
    from synthetic import make_problem

    from brio_core.training.checkpoints import Checkpoints
    from brio_core.training.trainer import train

    histories = []
    for number, device in enumerate(["cuda", "cuda", "cpu"]):
        problem, _ = make_problem("brio")
        problem.data.device = torch.device(device)
        results = train(problem, Checkpoints(tmp_path / str(number), "test", 1e9), None)
        histories.append([[epoch["loss"] for epoch in result.history] for result in results])
    assert histories[0] == histories[1]
    np.testing.assert_allclose(histories[0], histories[2], rtol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(), (3,), (5, 700), (2, 3, 4099)])
def test_kernel_equals_its_twin_bit_for_bit(shape):
    keys = torch.tensor([0, 7, 123456789012345, 2**62 + 11])
    drawn = [vmap(lambda key: uniform(key, shape, 3))(keys.to(on)) for on in ("cpu", "cuda")]
    assert torch.equal(drawn[0], drawn[1].cpu())


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
@pytest.mark.parametrize("width", [7, 64, 116, 200])
def test_dropout_norm_equals_plain_torch_in_value_and_gradient(width):
    torch.manual_seed(0)

    def function(hidden, values, bias, weight, shift, key):
        return dropout_norm(hidden, values, bias, Norm(weight, shift), 0.3, key, 3)

    nodes = [torch.randn(3, 4, 151, width) for _ in range(2)]
    compare(function, [*nodes, *(torch.randn(3, width) for _ in range(3))])


@pytest.mark.gpu
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


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.gpu
def test_site_norm_kernel_equals_its_twin():
    norm, results = SiteNorm(6), []

    def loss(values, weight, bias, buffers):
        out = functional_call(norm, ({"weight": weight, "bias": bias}, buffers), (values,))
        return (out * torch.linspace(-1, 2, out.numel(), device=out.device).view_as(out)).sum()

    tensors = (draw(2, 3, 4, 9, 6) * 2 + 5, draw(2, 6, seed=1), draw(2, 6, seed=2))
    for on in ("cpu", "cuda"):
        buffers = {
            name: value.expand(2, *value.shape).clone().to(on)
            for name, value in norm.named_buffers()
        }
        slopes, value = vmap(grad_and_value(loss, argnums=(0, 1, 2)))(
            *(tensor.to(on) for tensor in tensors), buffers
        )
        results.append([part.cpu() for part in (value, *slopes, *buffers.values())])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["highest", "high"])
@pytest.mark.parametrize(
    ("rois", "heads", "units", "rate"),
    [(5, 1, 3, 0.5), (116, 3, 40, 0.0), (200, 4, 16, 0.5), (415, 2, 100, 0.3)],
)
def test_graph_attention_equals_plain_torch_in_value_and_gradient(
    rois, heads, units, rate, precision
):
    layer, results = DenseGat(9, heads, units), []
    heard = draw(2, 3, rois, rois, seed=1) > 0.5
    # The first node hears nobody but itself.
    heard[..., 0, :] = False
    heard |= torch.eye(rois, dtype=torch.bool)
    above = draw(2, 3, rois, heads * units, seed=2) * 1e-6
    weights = {name: draw(2, *weight.shape) / 4 for name, weight in layer.named_parameters()}

    def loss(weights, nodes, heard, above, key):
        value = functional_call(layer, weights, (nodes, heard, None, rate, key, 3))
        return (value * above).sum(), value

    for on in ("cpu", "cuda"):
        moved = [part.to(on) for part in (draw(2, 3, rois, 9), heard, above, KEYS[:2])]
        given = {name: weight.to(on) for name, weight in weights.items()}
        # The plain twin is exact whatever is asked for.
        with float32_products(on == "cpu" or precision == "highest"):
            slopes, value = vmap(grad(loss, argnums=(0, 1), has_aux=True))(given, *moved)
        # Most of the receivers' gradient cancels, so it is compared beside the senders'.
        vectors = torch.stack([slopes[0]["receiver"], slopes[0]["sender"]])
        found = (value, slopes[1], slopes[0]["project.weight"], vectors)
        results.append([part.cpu() for part in found])
    tolerance = 1e-4 if precision == "highest" else 2e-2
    for plain, fused in zip(*results):
        assert (plain - fused).abs().max() < tolerance * plain.abs().max()
