"""CORE's parts: windows and courses against numpy, robust regressions, hyperparameters."""

import numpy as np
import pytest
import torch
from synthetic import settings_of
from torch.func import vmap

from brio_core.connectivity.fisher_z import standardise
from brio_core.methods.core.method import line_graph
from brio_core.methods.core.scaffold import huber_regression, swept_inverse
from brio_core.methods.core.sliding_windows import (
    describe_course,
    window_connectivity,
    window_members,
)
from brio_core.system.errors import BrioError

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


def make(n=40, edges=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    label = (torch.arange(n) % 2).float()
    columns = torch.stack([torch.ones(n), label, torch.randn(n, generator=generator)], 1)
    values = torch.randn(edges, n, generator=generator) + 0.8 * label
    return values, columns


def reference(values, design, iterations=10):
    """One outcome in float64, as it stands in a textbook."""
    y, x = values.double().numpy(), design.double().numpy()
    beta = np.linalg.lstsq(x, y, rcond=None)[0]
    for _ in range(iterations):
        residual = np.abs(y - x @ beta)
        scale = max(np.median(residual) / 0.6745, 1e-6)
        weight = np.minimum(1, 1.345 * scale / np.maximum(residual, 1e-300))
        inverse = np.linalg.inv(x.T @ (weight[:, None] * x) + 1e-6 * np.eye(x.shape[1]))
        beta = inverse @ x.T @ (weight * y)
    return beta, scale**2 * np.diag(inverse)


def test_all_outcomes_at_once_equal_one_after_the_other():
    values, design = make()
    values[0, 3] += 30
    draws = torch.randint(40, (3, 40), generator=torch.Generator().manual_seed(1))
    found, variance = huber_regression(values.T[draws].mT.contiguous(), design[draws])
    assert found.shape == variance.shape == (3, 3, 6)
    for sample, draw in enumerate(draws):
        for edge in range(6):
            beta, squared = reference(values[edge, draw], design[draw])
            np.testing.assert_allclose(found[sample, :, edge], beta, rtol=1e-3, atol=1e-4)
            np.testing.assert_allclose(variance[sample, :, edge], squared, rtol=1e-3)


def test_an_outlier_hardly_moves_the_effect():
    values, design = make()
    clean = huber_regression(values[None], design[None])[0][0, 1]
    values[:, 5] += 1000
    dirty = huber_regression(values[None], design[None])[0][0, 1]
    assert (clean - dirty).abs().max() < 0.3
    squares = torch.linalg.lstsq(design, values.T).solution[1]
    assert (clean - squares).abs().min() > 10


def test_a_column_that_others_explain_is_left_out():
    values, design = make()
    doubled = torch.cat([design, 2 - 3 * design[:, 1:2]], 1)
    plain, variance = huber_regression(values[None], design[None])
    found, more = huber_regression(values[None], doubled[None])
    torch.testing.assert_close(found[0, :3], plain[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(more[0, :3], variance[0], rtol=1e-3, atol=1e-5)
    assert not found[0, 3].any() and not more[0, 3].any()


def test_an_outcome_that_never_varies_has_no_effect():
    _, design = make()
    found, variance = huber_regression(torch.zeros(1, 2, 40), design[None])
    assert not found.any() and (variance > 0).all() and (variance < 1e-11).all()


def test_sweeping_inverts():
    generator = torch.Generator().manual_seed(0)
    roots = torch.randn(7, 4, 4, generator=generator, dtype=torch.float64)
    gram = roots @ roots.mT + torch.eye(4)
    before = gram.clone()
    inverse = swept_inverse(gram.permute(1, 2, 0)).permute(2, 0, 1)
    torch.testing.assert_close(inverse, torch.linalg.inv(gram))
    assert torch.equal(gram, before)


def test_line_adjacency_follows_from_the_incidence_matrix():
    first, second = torch.triu_indices(7, 7, 1)
    chosen = torch.randperm(21, generator=torch.Generator().manual_seed(0))[:12]
    first, second = first[chosen], second[chosen]
    roi = torch.arange(7)[:, None]
    incidence = ((roi == first) | (roi == second)).int()
    wanted = (incidence.T @ incidence - 2 * torch.eye(12, dtype=torch.int32)) != 0
    found = line_graph(first, second)
    assert torch.equal(found, wanted)
    assert torch.equal(found, found.T) and not found.diagonal().any()


def test_settings_are_checked():
    assert settings_of("core").n_edges(24) == 48
    assert [settings_of("core").n_edges(rois) for rois in (116, 200, 4)] == [256, 384, 6]
    assert settings_of("core", scaffold_edges=30).n_edges(200) == 30
    with pytest.raises(BrioError, match="bootstraps is 0"):
        settings_of("core", bootstraps=0)
