"""Block lengths, block bootstrap and re-estimated FC against loops over lags and frames."""

import math

import numpy as np
import pytest
import torch
from synthetic import autoregressive

from brio_core.connectivity.block_length import (
    autocorrelation_horizon,
    balanced_subset,
    clipped_block_length,
    estimate_block_length,
    round_half_up,
)
from brio_core.connectivity.fisher_z import fisher_z_connectivity, standardise
from brio_core.connectivity.reestimation import (
    block_indices,
    block_multiplicities,
    block_starts,
    reestimated_connectivity,
    refresh_keys,
    subject_keys,
)
from brio_core.system.randomness import fold_in, torch_generator
from brio_core.system.seeds import derive_seed


def resampling_keys(cohort, subjects, seed, block_length, refresh, n_resamples):
    return refresh_keys(subject_keys(cohort, subjects, seed), block_length, refresh, n_resamples)


def test_circular_blocks():
    keys = fold_in(torch.tensor(derive_seed("test")), torch.arange(200))
    indices = block_indices(50, 7, keys)
    assert indices.shape == (200, 50)
    assert indices.min() == 0 and indices.max() == 49
    steps = (indices[:, 1:] - indices[:, :-1]) % 50
    inside_block = torch.arange(1, 50) % 7 != 0
    assert (steps[:, inside_block] == 1).all()
    starts = indices[:, ::7].flatten()
    # Every frame is as likely as any other to start a block, and blocks wrap around.
    assert torch.bincount(starts, minlength=50).float().std() < 3 * (len(starts) / 50) ** 0.5
    assert (indices[:, 1:] < indices[:, :-1])[:, inside_block].any()
    assert not torch.equal(indices, block_indices(50, 7, fold_in(keys, 1)))
    assert len({tuple(row) for row in indices.tolist()}) == 200


def test_a_block_start_never_reaches_the_end():
    keys = torch.arange(200_000)
    for n_frames in (1, 2, 3, 64, 117, 316):
        starts = block_starts(keys, n_frames, 2)
        assert starts.min() == 0 and starts.max() == n_frames - 1


def test_multiplicities_count_the_indices():
    frames = torch.tensor([30, 41, 57, 78, 4, 6])
    lengths = torch.tensor([2, 5, 30, 7, 2, 3])
    keys = resampling_keys("cohort", list("abcdef"), 3, 7, 2, 5)
    counts = block_multiplicities(frames, lengths, keys, 80)
    assert counts.shape == (6, 5, 80)
    for one in range(6):
        for k in range(5):
            indices = block_indices(int(frames[one]), int(lengths[one]), keys[one, k])
            expected = [indices.tolist().count(frame) for frame in range(80)]
            assert counts[one, k].tolist() == expected
    assert torch.equal(counts.sum(-1), frames[:, None].expand(6, 5))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_reestimates_equal_connectivity_of_the_resampled_series(dtype, tolerance):
    frames = torch.tensor([40, 55, 61])
    lengths = torch.tensor([6, 3, 10])
    keys = resampling_keys("cohort", ["a", "b", "c"], 0, 6, 0, 4)
    scans = [torch.from_numpy(autoregressive(int(n), 9, 0.6, seed=int(n))) for n in frames]
    scans[1][:, 5] = 2.0
    bold = torch.zeros(3, 61, 9, dtype=dtype)
    for one, scan in enumerate(scans):
        bold[one, : len(scan)] = standardise(scan)
    counts = block_multiplicities(frames, lengths, keys, 61)
    connectivity = reestimated_connectivity(bold, counts)
    assert connectivity.shape == (3, 4, 9, 9) and connectivity.dtype == dtype
    for one, scan in enumerate(scans):
        for k in range(4):
            indices = block_indices(len(scan), int(lengths[one]), keys[one, k])
            expected = fisher_z_connectivity(scan[indices]).to(dtype)
            torch.testing.assert_close(connectivity[one, k], expected, atol=tolerance, rtol=0)
    assert (connectivity[1, :, 5] == 0).all()


def test_drawing_every_frame_once_gives_the_full_scan():
    scan = torch.from_numpy(autoregressive(50, 6, 0.5))
    connectivity = reestimated_connectivity(standardise(scan)[None], torch.ones(1, 1, 50))
    torch.testing.assert_close(connectivity[0, 0], fisher_z_connectivity(scan))


def test_reestimates_of_a_roi_that_is_constant_in_the_resample_are_zero():
    scan = torch.randn(40, 3, generator=torch_generator(0))
    scan[:, 1] = 0
    scan[7, 1] = 1
    counts = torch.ones(1, 1, 40)
    counts[..., 7], counts[..., 8] = 0, 2
    connectivity = reestimated_connectivity(standardise(scan)[None], counts)[0, 0]
    assert (connectivity[1] == 0).all() and connectivity[0, 2] != 0


def test_permuting_rois_permutes_reestimates():
    bold = standardise(torch.from_numpy(autoregressive(50, 6, 0.5)))[None]
    keys = resampling_keys("cohort", ["a"], 0, 5, 0, 3)
    counts = block_multiplicities(torch.tensor([50]), torch.tensor([5]), keys, 50)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    expected = reestimated_connectivity(bold, counts)[..., order, :][..., order]
    torch.testing.assert_close(reestimated_connectivity(bold[..., order], counts), expected)


def test_keys_depend_on_what_they_should():
    keys = resampling_keys("cohort", ["a", "b"], 0, 7, 1, 8)
    assert keys.shape == (2, 8) and len(set(keys.flatten().tolist())) == 16
    assert torch.equal(keys, refresh_keys(subject_keys("cohort", ["a", "b"], 0), 7, 1, 8))
    # A subject's keys do not depend on who is asked for beside it, nor on K.
    assert torch.equal(keys[1:], resampling_keys("cohort", ["b"], 0, 7, 1, 8))
    assert torch.equal(keys[:, :3], resampling_keys("cohort", ["a", "b"], 0, 7, 1, 3))
    others = [("other", 0, 7, 1), ("cohort", 1, 7, 1), ("cohort", 0, 8, 1), ("cohort", 0, 7, 2)]
    for cohort, seed, length, refresh in others:
        other = resampling_keys(cohort, ["a", "b"], seed, length, refresh, 8)
        assert not (keys == other).any()


@pytest.mark.gpu
def test_a_gpu_draws_the_same_frames():
    frames, lengths = torch.tensor([40, 78, 316]), torch.tensor([7, 7, 8])
    keys = resampling_keys("cohort", ["a", "b", "c"], 0, 7, 0, 8)
    on_cpu = block_multiplicities(frames, lengths, keys, 316)
    on_gpu = block_multiplicities(frames.cuda(), lengths.cuda(), keys.cuda(), 316)
    assert torch.equal(on_cpu, on_gpu.cpu())
    bold = torch.randn(3, 316, 20, generator=torch_generator(0))
    bold = bold * (torch.arange(316)[:, None] < frames[:, None, None])
    torch.testing.assert_close(
        reestimated_connectivity(bold.cuda(), on_gpu).cpu(),
        reestimated_connectivity(bold, on_cpu),
        atol=1e-5,
        rtol=1e-4,
    )


def slow_horizon(series: np.ndarray, threshold: float = 0.10, max_lag: int = 30) -> int:
    x = np.asarray(series, np.float64) - np.mean(series)
    longest = min(max_lag, len(x) // 2)
    correlation = [np.sum(x[: len(x) - lag] * x[lag:]) / np.sum(x * x) for lag in range(len(x))]
    for lag in range(1, longest):
        if abs(correlation[lag]) < threshold and abs(correlation[lag + 1]) < threshold:
            return lag
    return longest


@pytest.mark.parametrize("n_frames", [9, 40, 150])
@pytest.mark.parametrize("memory", [0.0, 0.6, 0.95])
def test_horizon_equals_the_slow_reading(n_frames, memory):
    series = autoregressive(n_frames, 12, memory)
    horizon = autocorrelation_horizon(series)
    assert horizon.tolist() == [slow_horizon(column) for column in series.T]
    assert autocorrelation_horizon(torch.from_numpy(series)).tolist() == horizon.tolist()
    assert autocorrelation_horizon(series[:, 0]) == horizon[0]


def test_horizon_needs_two_quiet_lags_in_a_row():
    # A cosine crosses zero again and again but never stays there.
    assert autocorrelation_horizon(np.cos(np.arange(400) * 2 * np.pi / 8), max_lag=30) == 30
    assert autocorrelation_horizon(np.cos(np.arange(20) * 2 * np.pi / 8), max_lag=30) == 10


def test_horizon_of_white_noise_is_short_and_grows_with_memory():
    medians = [
        np.median(autocorrelation_horizon(autoregressive(2000, 50, m))) for m in (0, 0.7, 0.9)
    ]
    assert medians[0] == 1 and medians[0] < medians[1] < medians[2]


@pytest.mark.parametrize("value, rounded", [(6.5, 7), (7.5, 8), (6.49, 6), (2.0, 2), (0.5, 1)])
def test_rounding_is_half_up(value, rounded):
    assert round_half_up(value) == rounded
    assert round_half_up(torch.tensor([value])).tolist() == [rounded]


@pytest.mark.parametrize("estimate", [0.3, 1.0, 6.5, 29.6, 80.0])
def test_block_length_is_clipped_per_scan(estimate):
    frames = [4, 5, 11, 59, 60, 200]
    expected = [
        min(max(math.floor(estimate + 0.5), 2), min(30, n_frames // 2)) for n_frames in frames
    ]
    assert [clipped_block_length(estimate, n_frames) for n_frames in frames] == expected
    assert clipped_block_length(estimate, torch.tensor(frames)).tolist() == expected
    assert clipped_block_length(torch.tensor(estimate), torch.tensor(frames)).tolist() == expected


def test_subset_takes_one_more_of_every_site_and_class_while_a_whole_round_fits():
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        site, label = (
            torch.randint(5, (60,), generator=draw),
            torch.randint(2, (60,), generator=draw),
        )
        at_most = int(torch.randint(1, 70, (), generator=draw))
        order = torch.randperm(60, generator=torch.Generator().manual_seed(seed)).tolist()
        seen, rank = {}, {}
        for row in order:
            cell = int(site[row]), int(label[row])
            rank[row] = seen.get(cell, 0)
            seen[cell] = rank[row] + 1
        rounds = 0
        while rounds < 60 and sum(one <= rounds for one in rank.values()) <= at_most:
            rounds += 1
        expected = sorted([row for row in order if rank[row] < max(1, rounds)][:at_most])
        chosen = balanced_subset(site, label, at_most, torch.Generator().manual_seed(seed))
        assert chosen.tolist() == expected


@pytest.mark.parametrize("at_most", [8, 20, 37, 128])
def test_subset_is_balanced_over_sites_and_classes(at_most):
    generator = np.random.default_rng(0)
    site, label = generator.integers(0, 4, 90), generator.integers(0, 2, 90)
    site[:60] = 0
    chosen = balanced_subset(
        torch.from_numpy(site), torch.from_numpy(label), at_most, torch_generator(0)
    )
    assert len(chosen) <= at_most and len(set(chosen.tolist())) == len(chosen)
    have = np.array([[np.sum((site == e) & (label == c)) for c in (0, 1)] for e in range(4)])
    took = np.array(
        [[np.sum((site[chosen] == e) & (label[chosen] == c)) for c in (0, 1)] for e in range(4)]
    )
    most = took.max()
    # A cell gives less than the others only when it has no more.
    assert ((took == most) | (took == have)).all()
    assert np.minimum(have, most + 1).sum() > at_most or (took == have).all()


def test_block_length_follows_the_memory_of_the_scans():
    site, label = np.repeat(np.arange(4), 6), np.tile([0, 1], 12)
    estimates = []
    for memory in (0.2, 0.8, 0.95):
        scans = [autoregressive(120, 8, memory, seed) for seed in range(24)]
        estimate = estimate_block_length(scans, site, label, generator=torch_generator(1))
        again = estimate_block_length(scans, site, label, generator=torch_generator(1))
        assert estimate == again
        estimates.append(estimate)
    assert estimates[0] < estimates[1] < estimates[2] <= 30


def test_block_length_is_the_stated_aggregate_when_nothing_is_sampled():
    scans = [autoregressive(60 + 3 * i, 5, 0.1 * (i % 8), i) for i in range(11)]
    site, label = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]), np.arange(11) % 2
    subject_value = []
    for scan in scans:
        x = (scan - scan.mean(0)) / scan.std(0)
        series = [x[:, u] for u in range(5)]
        series += [x[:, u] * x[:, v] for u in range(5) for v in range(u + 1, 5)]
        subject_value.append(np.quantile([slow_horizon(one) for one in series], 0.75))
    subject_value = np.array(subject_value)
    expected = np.median([np.median(subject_value[site == e]) for e in range(3)])
    estimate = estimate_block_length(scans, site, label, generator=torch_generator(0))
    assert estimate == expected


def test_block_length_ignores_constant_rois_and_missing_frames():
    scans = [autoregressive(80, 5, 0.7, seed) for seed in range(4)]
    site, label = [0, 0, 1, 1], [0, 1, 0, 1]
    expected = estimate_block_length(scans, site, label, generator=torch_generator(0))
    spoilt = []
    for scan in scans:
        scan = np.concatenate([scan, np.full((len(scan), 1), 3.0)], 1)
        spoilt.append(np.concatenate([np.full((2, 6), np.nan), scan]))
    estimate = estimate_block_length(spoilt, site, label, generator=torch_generator(0))
    assert estimate == expected
