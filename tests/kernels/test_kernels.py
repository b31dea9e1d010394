"""Fused kernels against their plain torch twins; the Sinkhorn kernels have tests of their own."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import node_descriptor, signed_graph

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_kernels_are_not_used_on_the_cpu():
    assert not kernels.usable(torch.zeros(1))


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("n_rois", [24, 116, 200])
def test_signed_features_equal_plain_torch(n_rois, shared):
    from brio_core.kernels.signed import signed_features

    torch.manual_seed(0)
    fc = torch.randn(*(() if shared else (3,)), 5, n_rois, n_rois, device="cuda")
    fc = fc + fc.mT
    support = torch.rand(3, n_rois, n_rois, device="cuda") > 0.7
    support = support | support.mT
    support[0, 0] = support[0, :, 0] = False

    def one_fold(fc, support):
        return tuple(part[0] for part in signed_features(fc, support[None]))

    graph, descriptor = vmap(one_fold, in_dims=(None if shared else 0, 0))(fc, support)
    for fold in range(3):
        own = fc if shared else fc[fold]
        expected = signed_graph(own, support[fold]).movedim(-3, -1).flatten(-2)
        torch.testing.assert_close(graph[fold], expected)
        torch.testing.assert_close(descriptor[fold], node_descriptor(own, support[fold]))


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("rows", [1, 50, 1000])
def test_residual_norm_equals_plain_torch_in_value_and_gradient(rows):
    from brio_core.kernels.residual_norm import residual_norm

    torch.manual_seed(0)
    hidden, own, received = (torch.randn(3, 7, rows, 64, device="cuda") for _ in range(3))
    weight, bias = torch.randn(3, 64, device="cuda"), torch.randn(3, 64, device="cuda")
    slope = torch.arange(64.0, device="cuda")

    def fused(hidden, own, received, weight, bias):
        norm = nn.LayerNorm(64, device="meta")
        parts = {"weight": weight, "bias": bias}
        call = type("Norm", (), {**parts, "eps": norm.eps})
        return (residual_norm(hidden, own, received, call) ** 2 * slope).sum()

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
def test_take_copies_rows():
    from brio_core.kernels.take import take

    source = torch.randn(50, 7, 123, device="cuda")
    index = torch.randint(50, (80,), device="cuda")
    assert torch.equal(take(source, index), source[index])


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
