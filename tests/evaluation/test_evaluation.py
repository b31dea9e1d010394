"""AUC, accuracy and intervals against closed forms, slow loops and other people's code."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtri

from brio_core.evaluation.intervals import (
    auc_interval,
    delong,
    deviation_over_sites,
    hanley_mcneil,
    interval_over_sites,
    prediction_interval,
)
from brio_core.evaluation.scores import Decision, accuracy, auc, placements, score_folds, usable
from brio_core.evaluation.site_statistics import site_table

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


def test_means_over_sites_have_students_interval():
    stats = pytest.importorskip("scipy.stats")
    values = [0.48, 0.53, 0.71, 0.47]
    expected = stats.t.interval(0.95, 3, np.mean(values), stats.sem(values))
    assert interval_over_sites(values)[1:] == pytest.approx(expected)
    assert math.isnan(interval_over_sites([0.7]).low) and interval_over_sites([0.7]).value == 0.7
    assert math.isnan(interval_over_sites([]).value)


def test_a_deviation_has_the_interval_of_chi_squared():
    stats = pytest.importorskip("scipy.stats")
    found = deviation_over_sites(0.1, 20)
    for end, share in ((found.low, 0.025), (found.high, 0.975)):
        assert stats.chi2.sf(19 * 0.01 / end**2, 19) == pytest.approx(share)
    assert math.isnan(deviation_over_sites(0.0, 20).low)


def test_a_new_site_is_where_the_random_effects_model_says():
    """Against draws from the posterior, one deviation between sites after the other."""
    values = np.array([0.62, 0.71, 0.66, 0.80, 0.58, 0.74, 0.69])
    variances = np.array([0.004, 0.002, 0.006, 0.003, 0.005, 0.002, 0.004])
    generator = np.random.default_rng(0)
    deviations = np.linspace(0, 0.25, 400)
    weights, means, errors = [], [], []
    for deviation in deviations:
        total = variances + deviation**2
        error = 1 / (1 / total).sum()
        mean = (values / total).sum() * error
        density = np.prod(np.exp(-((values - mean) ** 2) / (2 * total)) / np.sqrt(total))
        weights.append(density * math.sqrt(error))
        means.append(mean)
        errors.append(error)
    chosen = generator.choice(400, 400_000, p=np.array(weights) / sum(weights))
    spread = np.sqrt(np.array(errors)[chosen] + deviations[chosen] ** 2)
    drawn = generator.normal(np.array(means)[chosen], spread)
    expected = np.quantile(drawn, [0.025, 0.975])
    assert prediction_interval(values, variances) == pytest.approx(expected, abs=3e-3)


def test_a_new_site_is_less_certain_than_the_mean():
    generator = np.random.default_rng(1)
    values, variances = 0.7 + 0.1 * generator.normal(size=20), np.full(20, 0.005)
    low, high = prediction_interval(values, variances)
    mean = interval_over_sites(values)
    assert low < mean.low and high > mean.high
    # Sites that differ by sampling alone differ less: that part is taken out.
    wide = prediction_interval(values, np.full(20, 1e-4))
    assert wide[1] - wide[0] > high - low
    assert all(math.isnan(end) for end in prediction_interval(values[:2], variances[:2]))
    assert prediction_interval(np.ones(5), np.zeros(5))[1] <= 1
    tiny = prediction_interval(np.r_[values, 1.0], np.r_[variances, math.inf])
    assert tiny == prediction_interval(values, variances), "a site of one subject of a class"
    many = prediction_interval(values, variances, (10**7, 10**7))
    assert many == pytest.approx((low, high), abs=1e-4), "of many subjects the AUC is the true one"


def test_the_auc_of_few_subjects_of_a_new_site_is_where_it_was_to_be_expected():
    """Sites like the others, of 15 subjects of each class, whose scores are drawn one by one."""
    generator, inside = np.random.default_rng(3), 0
    for _ in range(200):
        true = np.clip(0.75 + 0.06 * generator.normal(size=16), 0.55, 0.95)
        distance = math.sqrt(2) * ndtri(true)
        label = np.repeat([1, 0], 15)
        scores = generator.normal(size=(16, 30)) + np.outer(distance, label)
        values, variances = np.transpose([delong(label, own) for own in scores])
        low, high = prediction_interval(values[1:], variances[1:], (15, 15))
        inside += low <= values[0] <= high
    assert 0.92 <= inside / 200 <= 0.99


def test_a_new_site_is_not_drawn_towards_sites_of_high_auc():
    """Sites of one true AUC and of unequal sizes: the middle of the interval is that AUC."""
    generator, middles = np.random.default_rng(0), []
    for _ in range(50):
        counts = generator.integers(10, 40, (20, 2))
        label = np.concatenate([np.repeat([1, 0], count) for count in counts])
        site = np.repeat([f"s{number:02d}" for number in range(20)], counts.sum(1))
        logit = generator.normal(size=len(label)) + math.sqrt(2) * ndtri(0.8) * label
        table = site_table(site, label, logit, {one: Decision() for one in set(site)}).loc["all"]
        middles.append((table["auc_new_low"] + table["auc_new_high"]) / 2)
    assert np.mean(middles) == pytest.approx(0.8, abs=0.006)


def test_intervals_cover_the_truth():
    """Small sites of ten: nominal 95 %, and no less than 90 % over 300 simulated cohorts."""
    generator = np.random.default_rng(5)
    shift = 1.0
    truth = 0.5 * (1 + math.erf(shift / 2))
    fold, label = np.repeat(["a", "b", "c", "d", "e", "f"], 10), np.tile([0, 1], 30)
    pooled = mean = 0
    for _ in range(300):
        score = generator.normal(size=60) + shift * label
        whole = auc_interval(label, score)
        sites = [auc(label[fold == name], score[fold == name]) for name in "abcdef"]
        over_folds = interval_over_sites(sites)
        pooled += whole.low <= truth <= whole.high
        mean += over_folds.low <= truth <= over_folds.high
    assert 0.92 <= pooled / 300 <= 0.985
    assert 0.92 <= mean / 300 <= 0.985
