"""Convolutions as matrix products."""

import torch
from torch.nn import functional

from brio_core.methods.layers.toeplitz import RunningFilter, shifted


def test_copies_are_moved_and_the_rest_is_zero():
    found = shifted(torch.tensor([[1.0, 2.0, 3.0]]), 3, 2)
    wanted = [[[1, 2, 3, 0, 0, 0, 0], [0, 0, 1, 2, 3, 0, 0], [0, 0, 0, 0, 1, 2, 3]]]
    assert found.tolist() == wanted


def test_the_gradient_adds_up_over_copies():
    rows = torch.randn(2, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
    shifted(rows, 4, 3).sum().backward()
    assert torch.equal(rows.grad, torch.full((2, 5), 4.0))


def test_a_running_filter_is_a_causal_convolution_per_channel():
    draw = torch.Generator().manual_seed(0)
    layer = RunningFilter(3, 6).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(generator=draw)
    values = torch.randn(3, 4, 6, generator=draw).double()
    # A library convolution multiplies the last weight with the current place.
    wanted = functional.conv1d(
        functional.pad(values.swapaxes(0, 1), (5, 0)),
        layer.kernel.flip(-1)[:, None],
        layer.bias,
        groups=3,
    )
    torch.testing.assert_close(layer(values), wanted.swapaxes(0, 1))


def test_a_running_filter_is_a_running_mean_at_first():
    drift = RunningFilter(2, 8)(torch.full((2, 1, 8), 3.0))
    wanted = 3 * torch.arange(1, 9) / 8
    torch.testing.assert_close(drift, wanted.expand(2, 1, 8))
