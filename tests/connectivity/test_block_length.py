"""Block lengths against loops over lags, and the balanced subset that they are estimated from."""

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
from brio_core.system.randomness import torch_generator


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
