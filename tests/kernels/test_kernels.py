"""Fused kernels against their plain torch twins; the Sinkhorn kernels have tests of their own."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.func import grad, vmap
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import node_descriptor, signed_graph
from brio_core.system.randomness import uniform

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class OnGpu(NamedTuple):
    """What the question for a kernel looks at."""

    dtype: torch.dtype = torch.float32
    is_cuda: bool = True


def test_kernels_are_not_used_on_the_cpu():
    assert not kernels.usable(torch.zeros(1), "signed")


def test_kernels_can_be_turned_off_and_are_recorded(monkeypatch):
    monkeypatch.setattr(kernels, "_available", lambda: True)
    with kernels.recorded() as used:
        assert kernels.usable(OnGpu(), "attention")
        assert kernels.at_hand(OnGpu(torch.int64), "uniform")
        assert not kernels.usable(OnGpu(torch.float64), "sinkhorn")
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
@needs_cuda
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("n_rois", [24, 116, 200])
def test_signed_features_equal_plain_torch(n_rois, shared):
    from brio_core.kernels.signed import SignedFeatures

    torch.manual_seed(0)
    fc = torch.randn(*(() if shared else (3,)), 5, n_rois, n_rois, device="cuda")
    fc = fc + fc.mT
    support = torch.rand(3, n_rois, n_rois, device="cuda") > 0.7
    support = support | support.mT
    support[0, 0] = support[0, :, 0] = False

    one_fold = vmap(SignedFeatures.apply, in_dims=(None if shared else 0, 0))
    graph, descriptor = one_fold(fc, support)
    for fold in range(3):
        own = fc if shared else fc[fold]
        expected = signed_graph(own, support[fold]).movedim(-3, -1).flatten(-2)
        torch.testing.assert_close(graph[fold], expected)
        torch.testing.assert_close(descriptor[fold], node_descriptor(own, support[fold]))


@pytest.mark.gpu
@needs_cuda
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
@needs_cuda
def test_take_copies_rows_from_the_host():
    from brio_core.kernels.take import take

    source = torch.randn(50, 7, 123).pin_memory()
    index = torch.randint(50, (80,), device="cuda")
    assert torch.equal(take(source, index), source.cuda()[index])


@pytest.mark.gpu
@needs_cuda
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
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    keys = torch.tensor([0, 7, 123456789012345, 2**62 + 11])
    drawn = [vmap(lambda key: uniform(key, shape, 3))(keys.to(on)) for on in ("cpu", "cuda")]
    assert torch.equal(drawn[0], drawn[1].cpu())
