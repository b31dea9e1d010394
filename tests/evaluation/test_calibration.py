"""Calibration and shares of classes, against scikit-learn and by hand."""

import math

import numpy as np
import pytest

from brio_core.evaluation.calibration import (
    brier,
    calibration_in_the_large,
    calibration_slope,
    probability,
)
from brio_core.evaluation.scores import (
    MEASURES,
    balanced_accuracy,
    score_folds,
    sensitivity,
    specificity,
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
        assert getattr(scores, name)[1] == pytest.approx(np.mean(wanted)), name
