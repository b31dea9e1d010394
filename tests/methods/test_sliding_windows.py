"""Windows and courses against numpy, one scan at a time."""

import numpy as np
import pytest
import torch
from torch.func import vmap

from brio_core.connectivity.fisher_z import standardise
from brio_core.methods.core.sliding_windows import (
    describe_course,
    window_connectivity,
    window_members,
)

FIRST, SECOND = torch.tensor([0, 0, 2]), torch.tensor([1, 3, 3])


def scan(frames, n_frames=None, seed=0):
    generator = torch.Generator().manual_seed(seed)
    series = standardise(torch.randn(frames, 4, generator=generator))
    return torch.nn.functional.pad(series, (0, 0, 0, (n_frames or frames) - frames))


def course_of(frames, length=40):
    """Every window of a scan, cut out by hand."""
    width = min(length, frames // 2)
    stride = max(1, width // 4)
    series = scan(frames).numpy()
    windows = [series[start : start + width] for start in range(0, frames - width + 1, stride)]
    z = [
        [np.arctanh(np.corrcoef(w[:, i], w[:, j])[0, 1]) for i, j in zip(FIRST, SECOND)]
        for w in windows
    ]
    return np.array(z)


@pytest.mark.parametrize("frames", [20, 23, 57, 79, 80, 145, 200])
def test_windows_are_those_cut_out_by_hand(frames):
    members = window_members(torch.tensor([frames]), 200, 40)
    found = window_connectivity(scan(frames, 200)[None], members, FIRST, SECOND)[0]
    wanted = course_of(frames)
    present = members.any(-1)[0]
    assert present.sum() == len(wanted) and present[: len(wanted)].all()
    np.testing.assert_allclose(found[present], wanted, atol=1e-4)
    assert not found[~present].any()


@pytest.mark.parametrize("frames", [23, 80, 200])
def test_descriptors_are_those_of_numpy(frames):
    members = window_members(torch.tensor([frames]), 200, 40)
    course = window_connectivity(scan(frames, 200)[None], members, FIRST, SECOND)
    found = describe_course(course, members.any(-1))[0]
    z = course_of(frames)
    mean, away = z.mean(0), z - z.mean(0)
    wanted = [
        mean,
        z.std(0),
        (away[1:] * away[:-1]).sum(0) / (away**2).sum(0),
        np.abs(np.diff(z, axis=0)).mean(0),
        np.quantile(z, 0.1, axis=0),
        np.quantile(z, 0.9, axis=0),
        (np.sign(z) != np.sign(mean)).mean(0),
    ]
    np.testing.assert_allclose(found, np.stack(wanted, -1), atol=1e-3)


def test_a_scan_does_not_depend_on_how_far_it_is_padded():
    parts = []
    for n_frames in (90, 300):
        members = window_members(torch.tensor([90]), n_frames, 40)
        course = window_connectivity(scan(90, n_frames)[None], members, FIRST, SECOND)
        parts.append(describe_course(course, members.any(-1)))
    torch.testing.assert_close(*parts)


def test_a_dead_region_gives_zeros():
    series = scan(100)
    series[:, 3] = 0
    members = window_members(torch.tensor([100]), 100, 40)
    course = window_connectivity(series[None], members, FIRST, SECOND)
    described = describe_course(course, members.any(-1))[0]
    assert torch.isfinite(described).all()
    assert not described[1:].any() and described[0].any()


def test_two_windows_have_no_autocorrelation():
    course = torch.tensor([[[1.0], [2.0], [9.0]]])
    described = describe_course(course, torch.tensor([[True, True, False]]))[0, 0]
    torch.testing.assert_close(described, torch.tensor([1.5, 0.5, 0.0, 1.0, 1.1, 1.9, 0.0]))


def test_folds_may_look_at_different_pairs():
    bold, frames = torch.stack([scan(60, 80), scan(80, seed=1)]), torch.tensor([60, 80])
    pairs = torch.stack([FIRST, SECOND.flip(0)]), torch.stack([SECOND, FIRST.flip(0)])

    def describe(first, second):
        members = window_members(frames, 80, 40)
        return describe_course(window_connectivity(bold, members, first, second), members.any(-1))

    together = vmap(describe)(*pairs)
    for fold in range(2):
        alone = describe(pairs[0][fold], pairs[1][fold])
        torch.testing.assert_close(together[fold], alone)
