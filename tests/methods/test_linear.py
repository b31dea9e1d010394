"""The four linear rows: what they fit, on whom, and what their folds share."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import inputs_of, make_cohort, make_problem

from brio_core.methods import registry
from brio_core.methods.stack import FoldStack
from brio_core.training.penalty_path import fit_path
from brio_core.training.results import fold_logits

NAMES = ["linear-confounds", "linear-correlation", "linear-reestimation", "linear-tangent"]


def edges_of(problem):
    row, column = np.triu_indices(problem.data.cohort.fc.shape[-1], 1)
    return problem.data.cohort.fc[:, row, column].astype(float)


def fitted(problem, point=-1, fold=0):
    module = problem.module(problem.data.folds[fold])
    module.fit(range(module.path_length)[point])
    return module


def logits_of(problem, module, rows):
    with torch.no_grad():
        return module.logits(module.features(inputs_of(problem, rows))).numpy()


def with_covariates(covariates):
    cohort, table = make_cohort()
    problem, _ = make_problem("linear-confounds", replace(cohort, covariates=covariates), table)
    return problem


@pytest.mark.parametrize("name", NAMES)
class TestLinearRow:
    def test_features_are_computed_once_for_all_folds(self, name, monkeypatch):
        problem, _ = make_problem(name)
        seen = []
        original = problem.trial.method.features

        def features(self, inputs):
            seen.append(len(next(iter(inputs.values()))))
            return original(self, inputs)

        monkeypatch.setattr(problem.trial.method, "features", features)
        for fold in problem.data.folds:
            fit_path(problem, fold)
        assert sum(seen) == len(problem.data.cohort.subjects)

    def test_all_seeds_give_the_same(self, name):
        one, other = (make_problem(name, seed=seed)[0] for seed in (0, 5))
        first, second = (fit_path(problem, problem.data.folds[0]) for problem in (one, other))
        assert first.history == second.history
        for key, value in first.state.items():
            assert torch.equal(value, second.state[key])

    def test_a_fold_does_not_depend_on_its_neighbours(self, name):
        together, _ = make_problem(name)
        alone, _ = make_problem(name, folds=slice(2, 3))
        fold = alone.data.folds[0]
        one, other = fit_path(together, fold), fit_path(alone, fold)
        assert one.selected_epoch == other.selected_epoch
        np.testing.assert_allclose(
            fold_logits(together, one, fold)["test"], fold_logits(alone, other, fold)["test"],
            rtol=1e-5, atol=1e-5,
        )  # fmt: skip

    def test_the_selected_point_has_the_best_auc_and_then_the_lowest_log_loss(self, name):
        problem, _ = make_problem(name)
        for fold in problem.data.folds:
            result = fit_path(problem, fold)
            scores = [
                (record["validation_auc"], -record["validation_log_loss"])
                for record in result.history
            ]
            assert len(scores) == result.epochs
            assert result.selected_epoch == 1 + scores.index(max(scores))
            assert (result.validation_auc, -result.validation_log_loss) == max(scores)

    def test_folds_can_be_stacked(self, name):
        problem, _ = make_problem(name)
        modules = [fitted(problem, fold=fold).eval() for fold in range(3)]
        stack = FoldStack(modules)
        inputs = inputs_of(problem)
        stacked = stack.call("logits", stack.call("features", inputs, shared=True))
        for module, logits in zip(modules, stacked):
            alone = module.logits(module.features(inputs))
            torch.testing.assert_close(logits, alone, rtol=1e-4, atol=1e-4)


class TestLinearConfounds:
    def test_values_are_standardised_on_training_subjects(self):
        covariates = np.random.default_rng(0).normal(40, 9, (48, 3)).astype(np.float32)
        problem = with_covariates(covariates)
        module = fitted(problem)
        train = problem.data.folds[0].train
        expected = (covariates - covariates[train].mean(0)) / covariates[train].std(0)
        represented = module.represent(problem.inputs).numpy()
        np.testing.assert_allclose(represented[:, :3], expected, rtol=1e-4, atol=1e-4)
        assert not represented[:, 3:].any()

    def test_missing_values_stand_at_the_training_mean_beside_an_indicator(self):
        covariates = np.random.default_rng(0).normal(40, 9, (48, 3)).astype(np.float32)
        covariates[::5, 1] = np.nan
        problem = with_covariates(covariates)
        represented = fitted(problem).represent(problem.inputs).numpy()
        missing = np.isnan(covariates)
        assert (represented[:, :3][missing] == 0).all()
        np.testing.assert_array_equal(represented[:, 3:], missing)

    def test_a_value_that_is_missing_at_test_only_changes_nothing(self):
        covariates = np.random.default_rng(0).normal(40, 9, (48, 3)).astype(np.float32)
        problem = with_covariates(covariates)
        module = fitted(problem)
        mean = module.mean.clone()
        one = torch.tensor([[50.0, float(mean[1]), 30.0]])
        missing = torch.tensor([[50.0, torch.nan, 30.0]])
        torch.testing.assert_close(
            module.logits({"covariates": one}), module.logits({"covariates": missing})
        )

    @pytest.mark.parametrize("value", [np.nan, 3.0])
    def test_a_covariate_that_nobody_has_or_all_share_says_nothing(self, value):
        covariates = np.random.default_rng(0).normal(40, 9, (48, 3)).astype(np.float32)
        covariates[:, 2] = value
        problem = with_covariates(covariates)
        module = fitted(problem)
        logits = logits_of(problem, module, np.arange(48))
        without = covariates.copy()
        without[:, 2] = 17.0
        assert np.isfinite(logits).all()
        np.testing.assert_allclose(
            logits, module.logits({"covariates": torch.as_tensor(without)}), atol=1e-4
        )

    def test_it_equals_scikit_learn(self):
        linear_model = pytest.importorskip("sklearn.linear_model")
        problem, _ = make_problem("linear-confounds")
        fold, strengths = problem.data.folds[0], problem.trial.hyperparameters.penalties
        for point in (0, 3, len(strengths) - 1):
            module = fitted(problem, point)
            represented = module.represent(problem.inputs).double().numpy()
            model = linear_model.LogisticRegression(C=strengths[point], tol=1e-10, max_iter=10_000)
            model.fit(represented[fold.train], problem.data.label[fold.train])
            np.testing.assert_allclose(
                logits_of(problem, module, fold.test),
                model.decision_function(represented[fold.test]),
                atol=1e-4,
            )


def test_correlation_equals_a_pipeline_of_scikit_learn():
    linear_model = pytest.importorskip("sklearn.linear_model")
    problem, _ = make_problem("linear-correlation")
    fold, strengths = problem.data.folds[0], problem.trial.hyperparameters.penalties
    edges = edges_of(problem)
    edges = (edges - edges[fold.train].mean(0)) / edges[fold.train].std(0)
    for point in (0, 3, len(strengths) - 1):
        model = linear_model.LogisticRegression(C=strengths[point], tol=1e-10, max_iter=100_000)
        model.fit(edges[fold.train], problem.data.label[fold.train])
        expected = model.decision_function(edges[fold.test])
        logits = logits_of(problem, fitted(problem, point), fold.test)
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4)


def test_tangent_equals_a_pipeline_of_nilearn_and_scikit_learn():
    connectome = pytest.importorskip("nilearn.connectome")
    linear_model = pytest.importorskip("sklearn.linear_model")
    problem, _ = make_problem("linear-tangent")
    fold, strengths = problem.data.folds[0], problem.trial.hyperparameters.penalties
    series = [
        problem.data.cohort.series.scan(row) for row in range(len(problem.data.cohort.subjects))
    ]
    series = [((scan - scan.mean(0)) / scan.std(0)).astype(float) for scan in series]
    measure = connectome.ConnectivityMeasure(
        kind="tangent", vectorize=True, discard_diagonal=False, standardize=False
    )
    train = measure.fit_transform([series[row] for row in fold.train])
    test = measure.transform([series[row] for row in fold.test]) - train.mean(0)
    module = fitted(problem)
    chosen = inputs_of(problem, fold.test)
    np.testing.assert_allclose(module.represent(module.features(chosen)), test, atol=1e-4)
    for point in (0, 3, len(strengths) - 1):
        model = linear_model.LogisticRegression(C=strengths[point], tol=1e-10, max_iter=100_000)
        model.fit(train - train.mean(0), problem.data.label[fold.train])
        expected = model.decision_function(test)
        logits = logits_of(problem, fitted(problem, point), fold.test)
        np.testing.assert_allclose(logits, expected, atol=1e-3 * np.abs(expected).max())


class TestLinearReestimation:
    def point(self, problem, penalty, power):
        settings = problem.trial.hyperparameters
        at = settings.penalties.index(penalty) * len(settings.powers)
        return at + settings.powers.index(power)

    def test_change_is_that_of_the_folds_own_scans_and_block_length(self):
        problem, _ = make_problem("linear-reestimation")
        problem.data.folds[1] = replace(problem.data.folds[1], block_length=9.2)
        row, column = torch.triu_indices(
            problem.data.cohort.fc.shape[-1], problem.data.cohort.fc.shape[-1], 1
        )
        for fold, length in zip(problem.data.folds[:3], (4, 9, 4)):
            rows = torch.as_tensor(fold.train)
            drawn = problem.scans.reestimate(rows, torch.tensor(length), 0, 3)
            change = (drawn - torch.as_tensor(problem.data.cohort.fc)[rows][:, None]).square()
            expected = change[..., row, column].mean((0, 1)).double()
            found = problem.shared_statistics[fold.name]["change"]
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-8)

    def test_scans_are_re_estimated_once_per_block_length(self, monkeypatch):
        problem, _ = make_problem("linear-reestimation")
        seen = []
        original = problem.scans.reweighted
        monkeypatch.setattr(
            problem.scans,
            "reweighted",
            lambda rows, *rest: seen.append(len(rows)) or original(rows, *rest),
        )
        for fold in problem.data.folds:
            fit_path(problem, fold)
        assert sum(seen) == len(problem.data.cohort.subjects)

    @pytest.mark.parametrize("power", [0.0, 2.0])
    def test_it_equals_a_pipeline_of_scikit_learn(self, power):
        linear_model = pytest.importorskip("sklearn.linear_model")
        problem, _ = make_problem("linear-reestimation")
        fold = problem.data.folds[0]
        edges, train = edges_of(problem), fold.train
        change = problem.shared_statistics[fold.name]["change"].numpy()
        support = np.maximum(0, 1 - change / edges[train].var(0)) ** power
        design = (edges - edges[train].mean(0)) / edges[train].std(0) * support
        site, label = problem.data.cohort.site[train], problem.data.label[train]
        sample = np.array(
            [1 / ((site == one) & (label == two)).sum() for one, two in zip(site, label)]
        )
        sample *= len(sample) / sample.sum()
        for penalty in problem.trial.hyperparameters.penalties:
            model = linear_model.Ridge(penalty, solver="cholesky")
            model.fit(design[train], 2.0 * label - 1, sample)
            module = fitted(problem, self.point(problem, penalty, power))
            logits = logits_of(problem, module, fold.test)
            np.testing.assert_allclose(logits, model.predict(design[fold.test]), atol=1e-4)

    def test_an_edge_that_changes_as_much_as_subjects_differ_gets_no_weight(self):
        problem, _ = make_problem("linear-reestimation")
        fold = problem.data.folds[0]
        variance = torch.as_tensor(edges_of(problem)[fold.train].var(0))
        change = problem.shared_statistics[fold.name]["change"]
        change.copy_(variance * torch.linspace(0, 2, len(variance)).double())
        module = fitted(problem, self.point(problem, 1.0, 1.0))
        lost = change >= variance * (1 + 1e-5)
        assert lost.any() and not lost.all()
        assert not module.scale[lost].any() and module.scale[~lost][:-1].all()
        assert not module.weight[lost].any()
        module.fit(self.point(problem, 1.0, 0.0))
        assert module.scale.all()

    def test_no_point_penalises_more_than_an_earlier_one(self):
        settings = make_problem("linear-reestimation")[0].trial.hyperparameters
        grid = [(alpha, power) for alpha in settings.penalties for power in settings.powers]
        for index, (alpha, power) in enumerate(grid):
            for later_alpha, later_power in grid[index + 1 :]:
                assert not (later_alpha >= alpha and later_power >= power)

    def test_edges_carry_their_support_in_the_representation(self):
        problem, _ = make_problem("linear-reestimation")
        module = fitted(problem, self.point(problem, 1.0, 0.0))
        plain = module.represent(module.features(problem.inputs))
        module.fit(self.point(problem, 1.0, 4.0))
        weighted = module.represent(module.features(problem.inputs))
        assert float(weighted.abs().sum()) < float(plain.abs().sum())


def test_weights_count_as_parameters():
    module = registry.find("linear-correlation")(
        make_problem("linear-correlation")[0].trial.hyperparameters, 10, 3
    )
    assert sum(parameter.numel() for parameter in module.parameters()) == 46
