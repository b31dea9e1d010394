"""Stretches of scans that differ in length, and filters along time."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from brio_core.methods.deci import RunningFilter
from brio_core.methods.layers.series import mirrored_window, shifted, standardised


def frames_of(window):
    return window[0, :, 0].long().tolist()


def window(frames, start, length, padding=3):
    series = torch.arange(frames + padding).float()[None, :, None].expand(1, -1, 2)
    return mirrored_window(series, torch.tensor([frames]), torch.tensor([start]), length)


def test_a_long_scan_is_cropped():
    assert frames_of(window(10, 4, 5)) == [4, 5, 6, 7, 8]


@pytest.mark.parametrize(("frames", "length"), [(78, 176), (4, 15), (2, 5), (1, 3), (6, 6)])
def test_a_short_scan_is_mirrored_to_and_fro(frames, length):
    # A pad that is longer than the scan has to be made of several.
    wanted = np.pad(np.arange(frames), (0, length - frames), mode="reflect")
    assert frames_of(window(frames, 0, length)) == wanted.tolist()


def test_standardised_series_and_a_constant_one():
    series = torch.randn(3, 50, 4, generator=torch.Generator().manual_seed(0)) * 5 + 2
    series[:, :, 1] = 7
    found = standardised(series, 1)
    torch.testing.assert_close(found.mean(1), torch.zeros(3, 4), rtol=0, atol=1e-5)
    spread = found.var(1, correction=0)
    torch.testing.assert_close(spread, torch.tensor([1.0, 0.0, 1.0, 1.0]).expand(3, 4))


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
