"""Calibration, and statistics over sites."""

import itertools
import math

import numpy as np
import pytest

from brio_core.evaluation import site_statistics
from brio_core.evaluation.intervals import averaging_share, delong
from brio_core.evaluation.scores import (
    MEASURES,
    Decision,
    Estimate,
    balanced_accuracy,
    brier,
    calibration_in_the_large,
    calibration_slope,
    probability,
    score_folds,
    sensitivity,
    specificity,
)
from brio_core.evaluation.site_statistics import (
    holm,
    paired,
    ranks_over_sites,
    sampling_spread,
    signed_rank,
    smallest_p,
)


def sample(seed=0, n=60, slope=0.5):
    generator = np.random.default_rng(seed)
    logit = generator.normal(0.3, 2, n)
    label = (generator.uniform(size=n) < 1 / (1 + np.exp(-slope * logit))).astype(int)
    return label, logit


def test_scores_equal_those_of_scikit_learn():
    metrics = pytest.importorskip("sklearn.metrics")
    label, logit = sample()
    said = logit > 0
    assert brier(label, logit) == pytest.approx(
        metrics.brier_score_loss(label, 1 / (1 + np.exp(-logit)))
    )
    assert sensitivity(label, logit) == pytest.approx(metrics.recall_score(label, said))
    assert specificity(label, logit) == pytest.approx(
        metrics.recall_score(label, said, pos_label=0)
    )
    assert balanced_accuracy(label, logit) == pytest.approx(
        metrics.balanced_accuracy_score(label, said)
    )


@pytest.mark.parametrize("seed", range(4))
def test_slope_equals_that_of_scikit_learn(seed):
    linear_model = pytest.importorskip("sklearn.linear_model")
    label, logit = sample(seed)
    model = linear_model.LogisticRegression(C=1e12, tol=1e-10, max_iter=10_000)
    slope = model.fit(logit[:, None], label).coef_[0, 0]
    assert calibration_slope(label, logit) == pytest.approx(slope, rel=1e-4)


def test_slope_tells_overconfidence():
    label, logit = sample(n=4000, slope=1.0)
    assert calibration_slope(label, logit) == pytest.approx(1, abs=0.1)
    assert calibration_slope(label, 4 * logit) == pytest.approx(0.25, abs=0.03)
    assert calibration_slope(label, -logit) == pytest.approx(-1, abs=0.1)


@pytest.mark.parametrize("outlier", [30.0, -1e3, 1e6])
def test_one_logit_far_out_does_not_hide_the_slope(outlier):
    """Classes overlap, so the likelihood has a highest point: there its slope is zero."""
    for seed in range(50):
        label, logit = sample(seed, n=30)
        logit[0] = outlier
        slope = calibration_slope(label, logit)
        low, high = -50 * (1 + abs(slope)), 50 * (1 + abs(slope))
        for _ in range(200):
            middle = (low + high) / 2
            above = probability(slope * logit + middle).mean() > label.mean()
            low, high = (low, middle) if above else (middle, high)
        rest = (label - probability(slope * logit + low)) * logit / np.abs(logit).max()
        assert rest.sum() == pytest.approx(0, abs=1e-6)


def test_slope_that_has_no_end_is_not_a_number():
    assert math.isnan(calibration_slope([0, 0, 1, 1], [-2, -1, 1, 2]))
    assert math.isnan(calibration_slope([0, 0, 1, 1], [2, 1, 1, -2]))
    assert math.isnan(calibration_slope([1, 1], [0.1, 0.2]))
    assert math.isnan(calibration_slope([0, 1], [0.5, 0.5]))
    almost = calibration_slope([0, 0, 0, 1, 0, 1, 1, 1], [-4, -3, -2, -0.01, 0.01, 2, 3, 4])
    assert almost > 0


def test_in_the_large_is_a_difference_of_means():
    assert calibration_in_the_large([0, 1], [0.0, 0.0]) == 0
    assert calibration_in_the_large([0, 0], [0.0, 0.0]) == 0.5
    assert probability(np.array([-800.0, 0.0, 800.0])).tolist() == [0, 0.5, 1]


def test_a_missing_class_has_no_share():
    assert math.isnan(sensitivity([0, 0], [1, -1])) and specificity([0, 0], [1, -1]) == 0.5
    assert math.isnan(balanced_accuracy([0, 0], [1, -1]))


def test_folds_carry_every_measure_averaged_over_seeds():
    label, logit = sample()
    fold = np.arange(len(label)) % 3
    scores = score_folds(fold, label, np.stack([logit, logit + 0.4]))
    for name, score in MEASURES.items():
        rows = fold == 1
        wanted = [score(label[rows], logit[rows] + shift) for shift in (0, 0.4)]
        assert scores[name][1] == pytest.approx(np.mean(wanted)), name


def test_a_decision_of_validation_moves_the_threshold_and_rescales_logits():
    label, logit = sample()
    fold = np.arange(len(label)) % 2
    seeds = np.stack([logit, 3 * logit + 1])
    decisions = [{0: Decision(0.3, 1.0, 0.0), 1: Decision(0.1, 2.0, -0.5)}] * 2
    scores = score_folds(fold, label, seeds, decisions)
    for name, (threshold, slope, intercept) in decisions[0].items():
        own = fold == name
        for measure in ("acc", "sensitivity", "specificity", "balanced_accuracy"):
            wanted = [MEASURES[measure](label[own], one[own] - threshold) for one in seeds]
            assert scores[f"{measure}_threshold"][name] == pytest.approx(np.mean(wanted))
        for measure in ("brier", "calibration_in_the_large", "calibration_slope"):
            wanted = [MEASURES[measure](label[own], slope * one[own] + intercept) for one in seeds]
            assert scores[f"{measure}_recalibrated"][name] == pytest.approx(np.mean(wanted))
        said = np.mean((seeds[:, own] > threshold) == label[own])
        assert scores["acc_threshold"][name] == pytest.approx(said)
    assert scores["acc"].equals(score_folds(fold, label, seeds)["acc"]), "0.5 stays beside it"
    alone = score_folds(fold, label, seeds).filter(regex="_threshold|_recalibrated")
    assert alone.isna().all(axis=None)


def slow_signed_rank(differences):
    """All signs of the observed ranks, one after the other."""
    values = [d for d in differences if d != 0]
    sizes = [abs(d) for d in values]
    ranks = [sum(other < size for other in sizes) + (sizes.count(size) + 1) / 2 for size in sizes]
    observed = sum(rank for rank, d in zip(ranks, values) if d > 0)
    sums = [
        sum(rank for rank, up in zip(ranks, signs) if up)
        for signs in itertools.product((False, True), repeat=len(ranks))
    ]
    below = sum(s <= observed for s in sums) / len(sums)
    above = sum(s >= observed for s in sums) / len(sums)
    return observed, min(1.0, 2 * min(below, above))


@pytest.mark.parametrize("n", [1, 2, 5, 9, 11])
@pytest.mark.parametrize("ties", [False, True])
def test_signed_rank_equals_enumeration(n, ties):
    generator = np.random.default_rng([n, ties])
    for _ in range(5):
        differences = generator.normal(0.3, 1, n)
        differences = np.round(differences) if ties else differences
        assert signed_rank(differences) == pytest.approx(slow_signed_rank(differences.tolist()))


def test_ranks_over_sites_equal_a_slow_bootstrap():
    generator = np.random.default_rng(0)
    scores = generator.normal([0.75, 0.7, 0.69, 0.5], 0.08, (20, 4))
    found = ranks_over_sites(scores, ("here",))

    def slow(means: np.ndarray) -> list[int]:
        return [1 + sum(other > own for other in means) for own in means]

    assert [one.value for one in found] == slow(scores.mean(0))
    drawn = [slow(scores[generator.integers(20, size=20)].mean(0)) for _ in range(2000)]
    for one, ranks in zip(found, np.transpose(drawn)):
        assert abs(one.low - np.quantile(ranks, 0.025)) <= 1
        assert abs(one.high - np.quantile(ranks, 0.975)) <= 1
    assert found[3] == (4.0, 4.0, 4.0), "it is the last wherever sites are drawn"
    alike = ranks_over_sites(scores[:, [0, 3, 0]], ("here",))
    assert alike == [(1.0, 1.0, 1.0), (3.0, 3.0, 3.0), (1.0, 1.0, 1.0)]


def test_signed_rank_equals_scipy_without_ties():
    stats = pytest.importorskip("scipy.stats")
    for seed, n in ((0, 7), (1, 20), (2, 25)):
        differences = np.random.default_rng(seed).normal(0.4, 1, n)
        ours, theirs = signed_rank(differences), stats.wilcoxon(differences, method="exact")
        assert ours[1] == pytest.approx(theirs.pvalue)
        assert min(ours[0], n * (n + 1) / 2 - ours[0]) == theirs.statistic


def test_signed_rank_at_its_ends():
    assert signed_rank(np.zeros(6)) == (0.0, 1.0)
    for n in (5, 7, 20):
        assert signed_rank(np.arange(1, n + 1))[1] == pytest.approx(smallest_p(n)) == 2 / 2**n
    # 0.3 - 0.2 and 0.1 are the same difference of AUCs, whatever floating point makes of them.
    assert signed_rank([0.3 - 0.2, -0.1]) == (1.5, 1.0)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    found = holm([math.nan, 0.02, 0.01])
    assert math.isnan(found[0]) and found[1:] == pytest.approx([0.02, 0.02])


@pytest.mark.parametrize(
    ("low", "high", "p", "expected"),
    [
        (0.01, 0.05, 0.01, "better"),
        (0.01, 0.05, 0.2, "undecided"),
        (-0.05, -0.001, 0.04, "worse"),
        (-0.01, 0.019, 0.5, "equivalent"),
        (0.001, 0.015, 0.01, "equivalent"),
        (-0.03, 0.01, 0.5, "undecided"),
        (math.nan, math.nan, math.nan, "undecided"),
    ],
)
def test_a_difference_needs_the_test_and_sameness_the_margin(low, high, p, expected, monkeypatch):
    interval = Estimate((low + high) / 2, low, high)
    monkeypatch.setattr(site_statistics, "interval_over_sites", lambda values: interval)
    monkeypatch.setattr(
        site_statistics, "signed_rank", lambda values: (28.0 * (values > 0).any(), p)
    )
    (found,) = paired([np.full(7, low + high)], 0.02)
    assert found["verdict"] == expected


def test_comparisons_are_tested_together_at_the_sites_that_both_have():
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(5)
    first, second = generator.normal(0.03, 0.02, (2, 12))
    second[3] = math.nan
    one, nothing, other = paired([first, None, second], 0.02)
    assert set(nothing.values()) == {None}
    for found, values in ((one, first), (other, np.delete(second, 3))):
        ends = stats.t.interval(0.95, len(values) - 1, values.mean(), stats.sem(values))
        names = ("difference", "difference_low", "difference_high")
        assert [found[key] for key in names] == pytest.approx([values.mean(), *ends])
        assert found["p"] == pytest.approx(stats.wilcoxon(values, method="exact").pvalue)
        assert found["sites_compared"] == len(values) == 12 - (found is other)
        assert (found["sites_better"], found["sites_worse"]) == (
            (values > 0).sum(),
            (values < 0).sum(),
        )
    small, large = sorted([one["p"], other["p"]])
    assert sorted([one["p_holm"], other["p_holm"]]) == pytest.approx(
        [2 * small, max(2 * small, large)]
    )


@pytest.mark.parametrize("auc", [0.5, 0.7, 0.9])
def test_spread_by_sampling_is_that_of_the_sizes(auc):
    """Hanley and McNeil's variance of an AUC, which knows nothing of our simulation."""
    positives, negatives = np.array([20, 30, 15, 40] * 5), np.array([25, 20, 15, 50] * 5)
    first, second = auc / (2 - auc), 2 * auc**2 / (1 + auc)
    variance = auc * (1 - auc) + (positives - 1) * (first - auc**2)
    variance = (variance + (negatives - 1) * (second - auc**2)) / (positives * negatives)
    found = sampling_spread(auc, positives, negatives, ("demo",))
    assert found.value == pytest.approx(np.sqrt(variance.mean()), rel=0.08)
    assert found.low < found.value < found.high


@pytest.mark.parametrize("correlation", [0.0, 0.4, 1.0])
def test_spread_of_a_mean_over_seeds(correlation):
    """Many sites are drawn and their AUCs averaged over seeds; no variance is computed."""
    generator, seeds, size, sites = np.random.default_rng(0), 4, 30, 400
    label = np.tile(np.arange(2 * size) % 2, sites)
    site = np.repeat(np.arange(sites), 2 * size)
    shared = np.sqrt(correlation) * generator.standard_normal(len(label)) + 0.8 * label
    logits = shared + np.sqrt(1 - correlation) * generator.standard_normal((seeds, len(label)))
    share = averaging_share(label, logits, site)
    assert share == pytest.approx((1 + (seeds - 1) * correlation) / seeds, abs=0.05)
    drawn = [delong(label[site == one], logits[:, site == one])[0] for one in range(sites)]
    sizes = np.full(10, size)
    found = sampling_spread(np.mean(drawn), sizes, sizes, ("demo",), share).value
    assert found == pytest.approx(np.std(drawn, ddof=1), rel=0.08)


def test_averaging_leaves_all_of_one_seed_and_of_equal_ones():
    generator = np.random.default_rng(0)
    label, strata = np.arange(40) % 2, np.arange(40) // 10
    logits = generator.standard_normal((1, 40))
    assert averaging_share(label, logits, strata) == 1
    assert averaging_share(label, np.repeat(logits, 3, 0), strata) == pytest.approx(1)
    assert averaging_share(label, logits, np.arange(40)) == 1, "no site has two of a class"


def test_spread_shrinks_with_the_sites():
    small, large = (
        sampling_spread(0.7, np.full(10, n), np.full(10, n), ("a",)).value for n in (10, 90)
    )
    assert small / large == pytest.approx(3, rel=0.15)
    assert math.isnan(sampling_spread(math.nan, [3, 3], [3, 3], ()).value)
    assert 0 <= sampling_spread(1.0, np.full(5, 7), np.full(5, 7), ()).value < 0.05
