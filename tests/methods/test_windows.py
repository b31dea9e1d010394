"""Stretches of scans that differ in length."""

import numpy as np
import pytest
import torch

from brio_core.methods.layers.windows import mirrored_window, standardised


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
