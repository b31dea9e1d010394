"""The logistic regression on a part of connectivity: what BRIO's encoder is given."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import inputs_of, make_cohort, make_problem, settings_of

from brio_core.connectivity.graphs import edge_places, propagation_support, upper_triangle
from brio_core.methods.stack import FoldStack
from brio_core.system.errors import BrioError
from brio_core.training.penalty_path import fit_path

READINGS = ["support", "descriptors"]


def slow_reading(fc, support, reads):
    """Columns of a design (N, .), one subject and one ROI at a time."""
    if reads == "support":
        row, column = np.nonzero(np.triu(support, 1))
        return fc[:, row, column]
    values = np.empty((len(fc), len(support), 3))
    for subject, matrix in enumerate(fc):
        for roi, here in enumerate(support):
            own = matrix[roi][here]
            values[subject, roi] = (
                own[own > 0].sum() / len(own),
                -own[own < 0].sum() / len(own),
                np.sqrt((own**2).mean()),
            )
    return values.reshape(len(fc), -1)


def support_of(problem, fold):
    fc, site = problem.data.cohort.fc, problem.data.cohort.site
    numbers = torch.as_tensor(np.unique(site[fold.train], return_inverse=True)[1])
    return propagation_support(
        torch.as_tensor(fc[fold.train]), numbers, problem.trial.hyperparameters.density
    )


def logits(module, fc):
    with torch.no_grad():
        return module.logits(module.features({"fc": torch.as_tensor(fc)})).numpy()


def test_edges_and_their_places_are_inverse():
    fc = torch.randn(3, 7, 7)
    fc = (fc + fc.mT) * ~torch.eye(7, dtype=torch.bool)
    found = upper_triangle(fc)[..., edge_places(7)]
    assert torch.equal(found * ~torch.eye(7, dtype=torch.bool), fc)


@pytest.mark.parametrize("reads", READINGS)
class TestReading:
    def test_it_equals_a_pipeline_of_scikit_learn(self, reads):
        linear_model = pytest.importorskip("sklearn.linear_model")
        problem, _ = make_problem("linear-correlation", reads=reads, density=0.4)
        fold, strengths = problem.data.folds[1], problem.trial.hyperparameters.penalties
        support = support_of(problem, fold)
        assert 0 < support.sum() < support.numel() - len(support)
        values = slow_reading(problem.data.cohort.fc.astype(float), support.numpy(), reads)
        values = values - values[fold.train].mean(0)
        deviation = values[fold.train].std(0)
        values = values / np.where(deviation > 0, deviation, 1)
        module = problem.module(fold)
        for point in (0, 3, len(strengths) - 1):
            model = linear_model.LogisticRegression(C=strengths[point], tol=1e-10, max_iter=100_000)
            model.fit(values[fold.train], problem.data.label[fold.train])
            expected = model.decision_function(values[fold.test])
            module.fit(point)
            found = logits(module, problem.data.cohort.fc[fold.test])
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)

    def test_only_training_subjects_count(self, reads):
        cohort, table = make_cohort()
        problem, _ = make_problem("linear-correlation", cohort, table, reads=reads)
        fold = problem.data.folds[0]
        fc = cohort.fc.copy()
        others = np.setdiff1d(np.arange(len(fc)), fold.train)
        fc[others] = np.roll(fc[others], (1, 1), (1, 2)) + 1
        changed, _ = make_problem("linear-correlation", replace(cohort, fc=fc), table, reads=reads)
        one, other = (each.module(each.data.folds[0]) for each in (problem, changed))
        for module in (one, other):
            module.fit(3)
        for name, value in one.state_dict().items():
            assert torch.equal(value, other.state_dict()[name]), name

    def test_features_that_do_not_fit_in_memory_give_the_same(self, reads):
        problem, _ = make_problem("linear-correlation", reads=reads)
        usual = problem.module(problem.data.folds[0])
        streamed, _ = make_problem("linear-correlation", reads=reads)
        streamed.__dict__["shared_features"] = None
        other = streamed.module(streamed.data.folds[0])
        assert torch.equal(usual.support, other.support)
        torch.testing.assert_close(usual.mean, other.mean)
        torch.testing.assert_close(usual._weights, other._weights)

    def test_folds_can_be_stacked(self, reads):
        problem, _ = make_problem("linear-correlation", reads=reads)
        modules = [problem.module(fold).eval() for fold in problem.data.folds[:3]]
        for module in modules:
            module.fit(2)
        stack, inputs = FoldStack(modules), inputs_of(problem)
        stacked = stack.call("logits", stack.call("features", inputs, shared=True))
        for module, found in zip(modules, stacked):
            alone = module.logits(module.features(inputs))
            torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)

    def test_a_stored_fold_predicts_as_before(self, reads):
        problem, _ = make_problem("linear-correlation", reads=reads)
        fold = problem.data.folds[0]
        result = fit_path(problem, fold)
        fresh = problem.trial.method(problem.trial.hyperparameters, problem.data.n_rois, 3)
        fresh.load_state_dict(result.state)
        module = problem.module(fold)
        module.fit(result.selected_epoch - 1)
        fc = problem.data.cohort.fc[fold.test]
        np.testing.assert_array_equal(logits(fresh, fc), logits(module, fc))


def test_edges_outside_the_support_get_no_weight():
    problem, _ = make_problem("linear-correlation", reads="support")
    module = problem.module(problem.data.folds[0])
    module.fit(3)
    outside = ~upper_triangle(module.support)
    assert outside.any() and not outside.all()
    assert not module.scale[outside].any() and not module.weight[outside].any()
    assert module.scale[~outside].all()


def test_all_edges_are_read_as_ever():
    """Neither a buffer more nor another size than before there was a choice."""
    problem, _ = make_problem("linear-correlation")
    module = problem.module(problem.data.folds[0])
    assert set(module.state_dict()) == {"weight", "bias", "mean", "scale"}


def test_a_wrong_reading_is_named():
    with pytest.raises(BrioError, match=r"reads.*edges, support, descriptors"):
        settings_of("linear-correlation", reads="everything")
