"""AUC, accuracy and intervals against closed forms, slow loops and other people's code."""

import itertools
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brio_core.evaluation.intervals import (
    auc_interval,
    delong,
    hanley_mcneil,
    mean_intervals,
    mean_of_repeats,
    resampling_weights,
    wilson,
)
from brio_core.evaluation.scores import accuracy, auc, placements, score_folds, usable

WORDS = ("demo", "loso")


def slow_auc(label, score):
    pairs = [(p, n) for p in score[label == 1] for n in score[label == 0]]
    return sum(1.0 if p > n else 0.5 if p == n else 0.0 for p, n in pairs) / len(pairs)


def slow_delong(label, logits):
    """Variance from the definition: sample variances of the structural components."""
    kernel = lambda p, n: float(p > n) + 0.5 * float(p == n)  # noqa: E731
    tenth = [
        np.mean([[kernel(p, n) for n in one[label == 0]] for p in one[label == 1]], axis=1)
        for one in logits
    ]
    first = [
        np.mean([[kernel(p, n) for p in one[label == 1]] for n in one[label == 0]], axis=1)
        for one in logits
    ]
    return sum(np.var(np.mean(side, axis=0), ddof=1) / len(side[0]) for side in (tenth, first))


def sample(generator, n=40, shift=1.0, ties=False):
    label = np.r_[np.zeros(n // 2, int), np.ones(n - n // 2, int)]
    score = generator.normal(size=n) + shift * label
    return label, np.round(score) if ties else score


@pytest.mark.parametrize(
    ("score", "expected"),
    [([0, 1, 2, 3], 1.0), ([3, 2, 1, 0], 0.0), ([5, 5, 5, 5], 0.5), ([0, 1, 1, 2], 0.875)],
)
def test_auc_of_known_orders(score, expected):
    assert auc([0, 0, 1, 1], score) == expected


def test_auc_needs_two_classes():
    assert math.isnan(auc([1, 1, 1], [0.1, 0.2, 0.3]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(-4, 4)), min_size=2, max_size=25).filter(
        lambda rows: len({label for label, _ in rows}) == 2
    )
)
def test_auc_is_the_share_of_ordered_pairs(rows):
    label, score = (np.array(column) for column in zip(*rows))
    assert auc(label, score) == pytest.approx(slow_auc(label, score), abs=1e-12)
    assert auc(label, -score) == pytest.approx(1 - auc(label, score), abs=1e-12)
    assert auc(1 - label, -score) == pytest.approx(auc(label, score), abs=1e-12)
    for side in placements(label, score):
        assert side.mean() == pytest.approx(auc(label, score), abs=1e-12)


def test_auc_and_accuracy_agree_with_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    generator = np.random.default_rng(0)
    for ties in (False, True):
        label, score = sample(generator, 101, ties=ties)
        assert auc(label, score) == pytest.approx(metrics.roc_auc_score(label, score))
        assert accuracy(label, score) == metrics.accuracy_score(label, score > 0)


def test_accuracy_is_taken_at_probability_one_half():
    assert accuracy([1, 1, 0, 0], [0.1, -0.1, -3, 0.0]) == 0.75


def test_folds_average_seeds_first_and_set_one_class_folds_aside():
    fold = np.repeat(["b", "a", "c"], [4, 4, 3])
    label = np.array([0, 0, 1, 1, 0, 0, 1, 1, 1, 1, 1])
    perfect = np.where(label == 1, 1.0, -1.0)
    scores = score_folds(fold, label, np.stack([perfect, np.zeros(11)]))
    assert scores["fold"].tolist() == ["a", "b", "c"]
    assert scores["n"].tolist() == [4, 4, 3] and scores["positives"].tolist() == [2, 2, 3]
    assert scores["auc"][:2].tolist() == [0.75, 0.75] and math.isnan(scores["auc"][2])
    assert scores["acc"].tolist() == [0.75, 0.75, 0.5]
    assert usable(scores)["fold"].tolist() == ["a", "b"]


@pytest.mark.parametrize("ties", [False, True])
def test_delong_equals_its_definition(ties):
    generator = np.random.default_rng(1)
    label, first = sample(generator, 31, ties=ties)
    logits = np.stack([first, first + generator.normal(size=31)])
    value, variance = delong(label, logits)
    assert value == pytest.approx(np.mean([slow_auc(label, one) for one in logits]))
    assert variance == pytest.approx(slow_delong(label, logits))


def test_pooled_interval_by_hand_and_its_limits():
    generator = np.random.default_rng(2)
    label, score = sample(generator)
    estimate = auc_interval(label, score)
    value, variance = delong(label, score)
    logit = lambda p: math.log(p / (1 - p))  # noqa: E731
    half = 1.959963984540054 * math.sqrt(variance) / (value * (1 - value))
    assert logit(estimate.low) == pytest.approx(logit(value) - half)
    assert logit(estimate.high) == pytest.approx(logit(value) + half)
    perfect = auc_interval(label, np.where(label == 1, 1.0, -1.0))
    assert perfect.value == perfect.high == 1 and 0.7 < perfect.low < 0.97
    reversed_ = auc_interval(label, np.where(label == 1, -1.0, 1.0))
    assert reversed_ == pytest.approx((0, 0, 1 - perfect.low))
    constant = auc_interval(label, np.zeros(len(label)))
    assert constant.value == 0.5 and constant.low < 0.4 and constant.high > 0.6
    assert all(math.isnan(number) for number in auc_interval([1, 1], [0.0, 1.0]))
    lone = auc_interval([1, 0, 0, 0], [2.0, 1.0, 3.0, 0.0])
    assert lone.low < lone.value < lone.high


def test_interval_from_sample_size_solves_its_equation():
    low, high = hanley_mcneil(0.8, 20, 30)
    for theta in (low, high):
        spread = 1 + 24 * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        variance = theta * (1 - theta) * spread / 600
        assert abs(theta - 0.8) == pytest.approx(1.959963984540054 * math.sqrt(variance))


def test_wilson_agrees_with_scipy():
    stats = pytest.importorskip("scipy.stats")
    expected = stats.binomtest(17, 20).proportion_ci(method="wilson")
    assert wilson(17 / 20, 20) == pytest.approx((expected.low, expected.high))


def test_repeats_have_students_interval():
    stats = pytest.importorskip("scipy.stats")
    values = [0.48, 0.53, 0.51, 0.47]
    estimate = mean_of_repeats(values)
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert estimate[1:] == pytest.approx(expected)


def test_weights_sum_to_one_per_cell_and_are_keyed():
    fold, label = np.repeat(["a", "b"], 6), np.tile([0, 1, 1], 4)
    weights = resampling_weights(fold, label, WORDS, draws=50)
    for name, value in itertools.product("ab", (0, 1)):
        assert np.allclose(weights[:, (fold == name) & (label == value)].sum(1), 1)
    assert np.array_equal(weights, resampling_weights(fold, label, WORDS, draws=50))
    alone = resampling_weights(fold[:6], label[:6], WORDS, draws=50)
    assert np.array_equal(weights[:, :6], alone)
    assert not np.array_equal(weights, resampling_weights(fold, label, ("x",), draws=50))


def test_bootstrap_equals_a_slow_loop():
    generator = np.random.default_rng(4)
    fold, label = np.repeat(["a", "b", "one"], [9, 7, 2]), np.r_[generator.integers(0, 2, 16), 1, 1]
    logits = np.round(generator.normal(size=(2, 18)) + label, 1)
    weights = resampling_weights(fold, label, WORDS, draws=40)
    aucs, accs = [], []
    for weight in weights:
        per_fold = []
        for name in "ab":
            up, down = (np.flatnonzero((fold == name) & (label == c)) for c in (1, 0))
            wins = sum(
                weight[i] * weight[j] * (float(one[i] > one[j]) + 0.5 * float(one[i] == one[j]))
                for one in logits for i in up for j in down
            ) / 2  # fmt: skip
            hits = sum(weight[i] * (one[i] > 0) for one in logits for i in up) / 2
            rejections = sum(weight[j] * (one[j] <= 0) for one in logits for j in down) / 2
            n = len(up) + len(down)
            per_fold.append((wins, (len(up) * hits + len(down) * rejections) / n))
        aucs.append(np.mean([pair[0] for pair in per_fold]))
        accs.append(np.mean([pair[1] for pair in per_fold]))
    auc_mean, acc_mean = mean_intervals(fold, label, logits, weights)
    scores = usable(score_folds(fold, label, logits))
    assert auc_mean.value == pytest.approx(scores["auc"].mean())
    assert acc_mean.value == pytest.approx(scores["acc"].mean())
    assert auc_mean[1:] == pytest.approx(np.quantile(aucs, [0.025, 0.975]))
    assert acc_mean[1:] == pytest.approx(np.quantile(accs, [0.025, 0.975]))


def test_perfect_folds_still_have_an_interval():
    fold, label = np.repeat(["a", "b"], 10), np.tile([0, 1], 10)
    weights = resampling_weights(fold, label, WORDS)
    for estimate in mean_intervals(fold, label, np.where(label == 1, 1.0, -1.0), weights):
        assert estimate.value == estimate.high == 1 and 0.7 < estimate.low < 0.9
    empty = mean_intervals(fold, np.ones(20, int), np.zeros(20), weights)
    assert all(math.isnan(number) for estimate in empty for number in estimate)


def test_intervals_cover_the_truth():
    """Small sites of ten: nominal 95 %, and no less than 90 % over 300 simulated cohorts."""
    generator = np.random.default_rng(5)
    shift = 1.0
    truth = 0.5 * (1 + math.erf(shift / 2))
    fold, label = np.repeat(["a", "b", "c", "d", "e", "f"], 10), np.tile([0, 1], 30)
    weights = resampling_weights(fold, label, WORDS, draws=400)
    pooled = mean = 0
    for _ in range(300):
        score = generator.normal(size=60) + shift * label
        whole, over_folds = (
            auc_interval(label, score), mean_intervals(fold, label, score, weights)[0]
        )  # fmt: skip
        pooled += whole.low <= truth <= whole.high
        mean += over_folds.low <= truth <= over_folds.high
    assert 0.92 <= pooled / 300 <= 0.985
    assert 0.90 <= mean / 300 <= 0.985


def test_twenty_sites_and_seventeen_methods_take_seconds():
    generator = np.random.default_rng(6)
    fold = np.repeat([f"site-{i}" for i in range(20)], 50)
    label = np.tile([0, 1], 500)
    start = time.perf_counter()
    weights = resampling_weights(fold, label, WORDS)
    for _ in range(17):
        mean_intervals(fold, label, generator.normal(size=(5, 1000)), weights)
    assert time.perf_counter() - start < 20
