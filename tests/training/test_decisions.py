"""Threshold and recalibration of a fold: by validation subjects or inner predictions alone."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, train_all

from brio_core.evaluation.scores import balanced_accuracy
from brio_core.training.results import fold_decision, fold_logits
from brio_core.training.selection import decision_threshold


def slow_threshold(logits, label):
    """Every candidate, one after the other."""
    values = sorted(set(logits))
    candidates = [0.0, *((low + high) / 2 for low, high in pairwise(values))]
    scored = [
        (-round(balanced_accuracy(label, np.array(logits) - one), 12), abs(one), one)
        for one in candidates
    ]
    return min(scored)[2]


@pytest.mark.parametrize("seed", range(20))
def test_the_threshold_is_that_of_a_slow_search(seed):
    generator = np.random.default_rng(seed)
    label = generator.permutation(np.arange(15) % 2)
    # Few values, so that there are ties of logits and of candidates.
    logits = generator.integers(-4, 5, 15) / 4 + label * (seed % 3) / 4 + (seed % 5) - 2
    assert decision_threshold(logits, label) == slow_threshold(logits.tolist(), label)


def test_ties_stay_near_probability_one_half():
    label = np.array([0, 0, 1, 1])
    assert decision_threshold(np.array([-2.0, -1.0, 1.0, 2.0]), label) == 0
    assert decision_threshold(np.array([3.0, 4.0, 6.0, 7.0]), label) == 5
    assert decision_threshold(np.array([1.0, 1.0, 1.0, 1.0]), label) == 0
    assert decision_threshold(np.array([1.0, 2.0]), np.array([1, 1])) == 0


def decided(problem, folder):
    """The decision of the first fold, trained anew."""
    fold, result = problem.data.folds[0], train_all(problem, folder)[0]
    logits = fold_logits(problem, result, fold)
    return fold_decision(problem.data, result, fold, logits["validation"]), logits, result


@pytest.mark.parametrize("name", ["gcn", "linear-correlation", "linear-logarithm"])
def test_test_labels_change_nothing_and_validation_labels_do(name, tmp_path):
    cohort, table = make_cohort(effect=0.2)
    problem, _ = make_problem(name, cohort, table, folds=slice(0, 1))
    fold = problem.data.folds[0]
    found, _, _ = decided(problem, tmp_path / "a")
    problem.data.label[fold.test] = 1 - problem.data.label[fold.test]
    assert decided(problem, tmp_path / "b")[0] == found
    problem.data.label[fold.validation] = problem.data.label[fold.validation][::-1]
    assert decided(problem, tmp_path / "c")[0] != found


@pytest.mark.parametrize("protocol", ["loso", "id"])
def test_groups_are_named_by_the_folds_that_test_them(protocol, tmp_path):
    cohort, table = make_cohort(per_class=10)
    site = cohort.site
    for name in ("linear-correlation", "linear-logarithm"):
        problem, split = make_problem(name, cohort, table, protocol, slice(0, 1))
        found, _, _ = decided(problem, tmp_path / name)
        fold = problem.data.folds[0]
        named = [name for group in found["validation"] for name in group]
        inner = name == "linear-logarithm"
        assert len(named) == (len(split["folds"]) - 1 if inner else 2) and fold.name not in named
        if protocol == "loso" and not inner:
            assert named == [site[group[0]] for group in fold.validation_groups]


def test_inner_predictions_of_all_sources_decide_and_are_calibrated_already(tmp_path):
    cohort, table = make_cohort(per_class=12, effect=0.2)
    problem, _ = make_problem("linear-logarithm", cohort, table, folds=slice(0, 1))
    found, _, result = decided(problem, tmp_path)
    fold = problem.data.folds[0]
    assert len(result.source_logits) == len(fold.sources) > len(fold.validation)
    label = problem.data.label[fold.sources]
    assert found["threshold"] == decision_threshold(result.source_logits.numpy(), label)
    # The history tells the AUC of every inner site, from which optimism is found.
    for point in result.history:
        aucs = [value for name, value in point.items() if name.startswith("validation_auc_")]
        assert len(aucs) == len(found["validation"])
        assert np.mean(aucs) == pytest.approx(point["validation_auc"])
    assert found["recalibration"]["slope"] == pytest.approx(1, abs=1e-3)
    assert found["recalibration"]["intercept"] == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("scale", [1e-5, 1.0, 1e5])
def test_recalibration_does_not_hang_on_the_scale_of_logits(scale, tmp_path):
    cohort, table = make_cohort(per_class=12, effect=0.1)
    problem, _ = make_problem("linear-correlation", cohort, table, folds=slice(0, 1))
    fold, result = problem.data.folds[0], train_all(problem, tmp_path)[0]
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(len(fold.validation), generator=generator).numpy()
    logits = problem.data.label[fold.validation] + noise
    plain = fold_decision(problem.data, result, fold, logits)["recalibration"]
    scaled = fold_decision(problem.data, result, fold, scale * logits)["recalibration"]
    assert scaled["slope"] * scale == pytest.approx(plain["slope"], rel=1e-6)
    assert scaled["intercept"] == pytest.approx(plain["intercept"], rel=1e-6)
