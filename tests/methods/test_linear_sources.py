"""Linear rows whose source sites all train, and choose the penalty by leaving one out in turn."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, train_all
from test_interface import replace_scans, same_state

from brio_core.cohorts.splits import permute_within_site
from brio_core.evaluation.scores import auc
from brio_core.methods.linear.exact import balanced_weights, ridge_grid
from brio_core.training.results import fold_logits
from brio_core.training.selection import calibration, group_aucs, mean_auc

ROWS = ("linear-logarithm", "linear-correlation", "linear-reestimation")


def test_left_out_predictions_are_those_of_honest_refits():
    generator = torch.Generator().manual_seed(0)
    design = torch.randn(40, 70, generator=generator, dtype=torch.float64)
    label = torch.randint(2, (40,), generator=generator)
    site = torch.arange(40) % 5
    scales = torch.rand(2, 70, generator=generator, dtype=torch.float64)
    sample, target, alphas = balanced_weights(site, label), 2 * label - 1, [100.0, 1.0, 1e-2]
    weights, intercepts, found = ridge_grid(design, target, sample, scales, alphas, site)
    plain = ridge_grid(design, target, sample, scales, alphas)
    assert torch.equal(weights, plain[0]) and torch.equal(intercepts, plain[1])
    for out in range(5):
        inside = site != out
        refit = ridge_grid(design[inside], target[inside], sample[inside], scales, alphas)
        for number, scale in enumerate(scales):
            expected = refit[0][number] @ (design[~inside] * scale).T + refit[1][number][:, None]
            torch.testing.assert_close(found[number][:, ~inside], expected)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("protocol", ["loso", "id"])
def test_validation_subjects_train_and_test_subjects_do_not(name, protocol, tmp_path):
    cohort, table = make_cohort(per_class=10)
    chosen = {"protocol": protocol, "folds": slice(0, 1), "selection": "sources"}
    problem, _ = make_problem(name, cohort, table, **chosen)
    fold = problem.data.folds[0]
    state = train_all(problem, tmp_path / "a")[0].state
    changed = make_cohort(per_class=10, seed=1)[0]
    sources = np.union1d(fold.train, fold.validation)
    outside = np.setdiff1d(np.arange(len(cohort.subjects)), sources)
    assert set(fold.test) <= set(outside)
    other, _ = make_problem(name, replace_scans(cohort, changed, outside), table, **chosen)
    assert same_state(state, train_all(other, tmp_path / "b")[0].state)
    validated = replace_scans(cohort, changed, fold.validation)
    other, _ = make_problem(name, validated, table, **chosen)
    assert not same_state(state, train_all(other, tmp_path / "c")[0].state)


def test_validation_logits_come_from_fits_without_their_site(tmp_path):
    cohort, table = make_cohort()
    problem, _ = make_problem("linear-logarithm", cohort, table, folds=slice(0, 1))
    result, fold = train_all(problem, tmp_path)[0], problem.data.folds[0]
    logits = fold_logits(problem, result, fold)
    assert len(logits["validation"]) == len(fold.validation)
    # A fit that has seen them predicts better than the ones that have not.
    module = problem.restored(fold, result.state, result.chosen)
    rows = torch.as_tensor(fold.validation)
    seen = module.logits(module.features({"fc": torch.as_tensor(cohort.fc)[rows]})).numpy()
    label = problem.data.label[fold.validation]
    assert not np.allclose(seen, logits["validation"])
    assert ((seen > 0) == label).mean() >= ((logits["validation"] > 0) == label).mean()


@pytest.mark.parametrize("name", ["linear-logarithm", "linear-combat"])
def test_the_row_learns_and_permuted_labels_fall_to_chance(name, tmp_path):
    def test_auc(permutation: int | None) -> float:
        cohort, table = make_cohort(n_sites=8, per_class=12, effect=0.3)
        if permutation is not None:
            label = permute_within_site(table["site"], table["label"], permutation)
            table = table.assign(label=label)
        problem, _ = make_problem(name, cohort, table)
        results = train_all(problem, tmp_path / str(permutation))
        found = [
            auc(problem.data.label[fold.test], fold_logits(problem, result, fold)["test"])
            for fold, result in zip(problem.data.folds, results)
        ]
        return float(np.mean(found))

    assert test_auc(None) > 0.8
    assert np.mean([test_auc(number) for number in range(6)]) == pytest.approx(0.5, abs=0.05)


def test_logits_are_calibrated_and_never_turned_round():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randn(4000, generator=generator, dtype=torch.float64)
    label = (torch.rand(4000, generator=generator) < torch.sigmoid(2 * truth - 1)).long()
    slope, intercept = calibration(0.1 * truth + 3, label)
    assert slope == pytest.approx(20, rel=0.1)
    assert slope * 3 + intercept == pytest.approx(-1, abs=0.15)
    slope, intercept = calibration(-truth, label)
    assert 0 < slope < 0.01
    assert intercept == pytest.approx(float(torch.logit(label.double().mean())))


def test_mean_auc_leaves_out_groups_of_one_class():
    logits, label = torch.tensor([0.0, 1.0, 1.0, 2.0, 3.0]), torch.tensor([0, 1, 0, 1, 1])
    groups = [np.array([0, 1]), np.array([1, 2]), np.array([3, 4])]
    aucs = group_aucs(logits, label, groups)
    np.testing.assert_array_equal(aucs, [1.0, 0.5, np.nan])
    assert mean_auc(aucs) == pytest.approx(0.75)
    assert mean_auc(aucs[2:]) == 0.5


def test_inner_folds_are_the_parts_that_the_split_tests():
    problem, split = make_problem("linear-logarithm", protocol="id")
    data = problem.data.on_sources()
    fold = data.folds[0]
    assert len(fold.validation_groups) == len(split["folds"]) - 1
    assert np.array_equal(np.sort(np.concatenate(fold.validation_groups)), fold.train)
    view = replace(problem, data=data).view(fold)
    assert view.inner_folds.unique().tolist() == list(range(len(fold.validation_groups)))


def test_penalties_with_equal_auc_are_told_apart_by_log_loss(tmp_path):
    cohort, table = make_cohort(n_rois=4, effect=3.0)
    problem, _ = make_problem("linear-logarithm", cohort, table)
    tied = 0
    for result in train_all(problem, tmp_path):
        scores = [(one["validation_auc"], -one["validation_log_loss"]) for one in result.history]
        assert (result.validation_auc, -result.validation_log_loss) == max(scores)
        assert result.selected_epoch == 1 + scores.index(max(scores))
        aucs = [auc for auc, _ in scores]
        tied += result.selected_epoch > 1 + aucs.index(max(aucs))
    assert tied, "no fold had a tie that log-loss decides"
