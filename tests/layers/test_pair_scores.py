"""Additive pair scores against the network they stand for."""

import pytest
import torch
from torch.func import grad, vmap

from brio_core.layers.pair_scores import pair_scores


def plain(sender, receiver, weight):
    """The same with the hidden layer of every pair in memory."""
    hidden = (sender[..., :, None, :] + receiver[..., None, :, :]).relu()
    ones = [1] * (hidden.ndim - weight.ndim)
    return (hidden * weight.view(*weight.shape[:-1], *ones, weight.shape[-1])).sum(-1)


def example(lead=(), graphs=(3,), rois=7, units=5):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    sides = (draw(*lead, *graphs, rois, units) for _ in range(2))
    return *sides, draw(*lead, units), draw(*lead, *graphs, rois, rois)


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_equals_the_network_on_all_pairs(lead):
    *inputs, above = example(lead)
    torch.testing.assert_close(pair_scores(*inputs), plain(*inputs))
    found = grad(lambda *x: (pair_scores(*x) * above).sum(), argnums=(0, 1, 2))(*inputs)
    wanted = grad(lambda *x: (plain(*x) * above).sum(), argnums=(0, 1, 2))(*inputs)
    torch.testing.assert_close(found, wanted)


def test_maps_over_folds():
    *inputs, above = example((4,))

    def loss(function):
        return lambda above, *x: (function(*x) * above).sum()

    found = vmap(grad(loss(pair_scores), argnums=(1, 2, 3)))(above, *inputs)
    wanted = vmap(grad(loss(plain), argnums=(1, 2, 3)))(above, *inputs)
    torch.testing.assert_close(found, wanted)


def test_weights_may_be_shared_by_all_folds():
    sender, receiver, _, _ = example((4,))
    weight = torch.linspace(-1, 1, sender.shape[-1])
    found = vmap(pair_scores, in_dims=(0, 0, None))(sender, receiver, weight)
    torch.testing.assert_close(found, plain(sender, receiver, weight.expand(4, -1)))


@pytest.mark.gpu
@pytest.mark.parametrize(("lead", "rois"), [((), 7), ((2, 3), 200)])
def test_kernel_equals_its_twin(lead, rois):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    *inputs, above = example(lead, rois=rois, units=16)

    def derivatives(device):
        moved = [tensor.to(device) for tensor in inputs]
        loss = lambda *x: (pair_scores(*x) * above.to(device)).sum()  # noqa: E731
        return [part.cpu() for part in grad(loss, argnums=(0, 1, 2))(*moved)]

    cuda = pair_scores(*(tensor.cuda() for tensor in inputs)).cpu()
    torch.testing.assert_close(cuda, pair_scores(*inputs), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(derivatives("cuda"), derivatives("cpu"), rtol=1e-4, atol=1e-3)
