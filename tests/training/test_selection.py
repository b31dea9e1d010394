"""What validation decides: checkpoints, when a fold stops, settings."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import make_cohort, make_problem, train_all

from brio_core.evaluation.scores import auc
from brio_core.methods.stack import FoldStack
from brio_core.training import gradient, selection
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.gradient import GradientFit
from brio_core.training.results import fold_logits, predict_rows, write_history
from brio_core.training.run import fold_records
from brio_core.training.selection import ValidationAuc
from brio_core.training.trainer import combinations, search, train


@pytest.mark.parametrize("pairs", [1, 2000, selection.PAIRS_AT_ONCE])
def test_validation_auc_equals_the_mean_over_groups(pairs, monkeypatch):
    monkeypatch.setattr(selection, "PAIRS_AT_ONCE", pairs)
    generator = np.random.default_rng(0)
    label = generator.integers(0, 2, 60)
    label[50:] = 1
    groups = [
        [np.arange(0, 20), np.arange(20, 45)],
        [np.arange(5, 12), np.arange(50, 60)],
        [np.arange(50, 55), np.arange(55, 60)],
    ]
    scores = np.round(generator.standard_normal((3, 60)), 1)
    measure = ValidationAuc(groups, label, "cpu")
    logits = torch.as_tensor(np.take_along_axis(scores, measure.rows, 1))
    groups_found = measure.groups(logits)
    for group, value in zip(groups[0], groups_found[0]):
        assert float(value) == pytest.approx(auc(label[group], scores[0][group]), abs=1e-12)
    assert groups_found[1].isnan().tolist() == [False, True]
    found = measure.mean(groups_found)
    first = np.mean([auc(label[group], scores[0][group]) for group in groups[0]])
    assert float(found[0]) == pytest.approx(first, abs=1e-12)
    # A group of one class is left out; a fold with none left is at chance.
    assert float(found[1]) == pytest.approx(auc(label[5:12], scores[1][5:12]), abs=1e-12)
    assert float(found[2]) == 0.5


def test_validation_subjects_of_unequal_folds_are_scored_once_and_without_much_padding():
    label = np.arange(400) % 2
    counts = [30, 40, 50, 60, 70, 80, 300, 350]
    measure = ValidationAuc([[np.arange(count)] for count in counts], label, "cpu")
    seen = torch.zeros(measure.index.shape, dtype=torch.int64)
    for folds, places, columns in measure.parts(at_once=100):
        assert columns.stop - columns.start <= 100
        seen[slice(None) if folds is None else folds, columns] += 1
        if folds is not None:
            here = [places.tolist().index(number) for number in range(len(folds))]
            assert here == folds.tolist() and places.max() == len(folds)
    for scored, count in zip(seen, counts):
        assert (scored[:count] == 1).all()
    assert seen.max() == 1 and seen.sum() < 1.5 * sum(counts)


def test_wide_matrices_are_validated_few_at_a_time(tmp_path, monkeypatch):
    problem, _ = make_problem("gcn", epochs=2, first_epoch=1)
    whole = train_all(problem, tmp_path / "whole")
    monkeypatch.setattr(gradient, "NUMBERS_AT_ONCE", 3 * problem.data.n_rois**2)
    scored, call = [], FoldStack.call

    def counted(stack, verb, features, **how):
        if verb == "logits":
            scored.append(next(iter(features.values())).shape[1])
        return call(stack, verb, features, **how)

    monkeypatch.setattr(FoldStack, "call", counted)
    parts = train_all(problem, tmp_path / "parts")
    assert scored and max(scored) <= 3
    for one, other in zip(whole, parts):
        for key, value in one.state.items():
            torch.testing.assert_close(value, other.state[key])
        assert one.validation_log_loss == pytest.approx(other.validation_log_loss, abs=1e-6)


@pytest.mark.parametrize("name", ["gcn", "linear-correlation"])
def test_history_has_the_auc_of_every_validation_site(name, tmp_path):
    problem, _ = make_problem(name, epochs=3) if name == "gcn" else make_problem(name)
    for fold, result in zip(problem.data.folds, train_all(problem, tmp_path)):
        assert result.name == fold.name and len(fold.validation_groups) == 2
        for epoch in result.history:
            sites = [epoch[f"validation_auc_{number}"] for number in (1, 2)]
            assert epoch["validation_auc"] == pytest.approx(np.mean(sites), abs=1e-12)
        # Those of the epoch that was kept are what the kept model gives, site by site.
        kept = result.history[result.selected_epoch - 1]
        module = problem.restored(fold, result.state, result.chosen)
        for number, rows in enumerate(fold.validation_groups, start=1):
            logits = predict_rows(module, problem.inputs, rows)
            found = auc(problem.data.label[rows], logits)
            assert kept[f"validation_auc_{number}"] == pytest.approx(found, abs=1e-9)


def test_a_single_validation_group_is_listed_once():
    measure = ValidationAuc([[np.arange(6)]], np.array([0, 1] * 3), "cpu")
    assert measure.columns == []


def test_log_loss_is_the_mean_over_groups_and_counts_a_group_of_one_class():
    label = np.array([0, 1, 1, 0, 1, 1, 1])
    groups = [[np.arange(4), np.arange(4, 7)], [np.arange(2)]]
    measure = ValidationAuc(groups, label, "cpu")
    logits = torch.linspace(-2, 3, 7).expand(2, 7)
    logits = torch.take_along_dim(logits, measure.index, 1)
    probability = 1 / (1 + np.exp(-logits.double().numpy()))
    lost = -np.where(label[measure.rows] == 1, np.log(probability), np.log(1 - probability))
    wanted = [(lost[0, :4].mean() + lost[0, 4:].mean()) / 2, lost[1, :2].mean()]
    np.testing.assert_allclose(measure.log_loss(logits), wanted, rtol=1e-12)


def test_penalties_with_equal_auc_are_told_apart_by_log_loss(tmp_path):
    """All rank alike; the strongest would predict one half for everybody."""
    cohort, table = make_cohort(n_rois=4, effect=3.0)
    problem, _ = make_problem("linear-tangent", cohort, table)
    for fold, result in zip(problem.data.folds, train_all(problem, tmp_path)):
        best = [one for one in result.history if one["validation_auc"] == result.validation_auc]
        assert len(best) > 1 and result.history[0] in best, "a tie with the strongest penalty"
        assert result.validation_log_loss == min(one["validation_log_loss"] for one in best)
        logits = fold_logits(problem, result, fold)["test"]
        brier = np.mean((1 / (1 + np.exp(-logits)) - problem.data.label[fold.test]) ** 2)
        assert result.selected_epoch > 1 and brier < 0.1


def test_epochs_with_equal_auc_are_told_apart_by_log_loss(tmp_path):
    cohort, table = make_cohort(effect=3.0)
    problem, _ = make_problem("gcn", cohort, table, epochs=12, first_epoch=3, patience=0)
    later = 0
    for result in train_all(problem, tmp_path):
        scores = [(one["validation_auc"], -one["validation_log_loss"]) for one in result.history]
        assert result.selected_epoch == 1 + scores.index(max(scores[2:]), 2)
        later += result.selected_epoch > 1 + [auc for auc, _ in scores].index(max(scores[2:])[0], 2)
    assert later, "no fold had a tie that log-loss decides"


def test_ties_in_both_go_to_the_earliest_eligible_epoch(tmp_path):
    problem, _ = make_problem("gcn", learning_rate=0.0, weight_decay=0.0, dropout=0.0)
    # Nothing learns, so after BatchNorm has settled every epoch scores alike.
    results = train_all(problem, tmp_path)
    for result in results:
        scores = [
            (epoch["validation_auc"], -epoch["validation_log_loss"]) for epoch in result.history
        ]
        eligible = scores[problem.trial.hyperparameters.first_epoch - 1 :]
        expected = problem.trial.hyperparameters.first_epoch + eligible.index(max(eligible))
        assert result.selected_epoch == expected


def test_patience_stops_a_fold(tmp_path):
    problem, _ = make_problem("gcn", epochs=30, patience=2, first_epoch=1)
    for result in train_all(problem, tmp_path):
        aucs = [epoch["validation_auc"] for epoch in result.history]
        # The first of equals: a lower log-loss makes a better checkpoint but no more patience.
        assert result.epochs == min(30, 1 + aucs.index(max(aucs)) + 2)


@pytest.mark.parametrize("name", ["gcn", "core", "brio"])
def test_folds_that_have_stopped_are_not_trained_on(name, tmp_path, monkeypatch):
    """Those that go on alone end with the numbers that they have beside the others."""
    settings = {"epochs": 16, "patience": 2, "learning_rate": 3e-3}
    problem, _ = make_problem(name, **settings)
    trained = []
    step = GradientFit._step

    def counted(run, phase):
        trained.append(len(run.folds))
        step(run, phase)

    monkeypatch.setattr(GradientFit, "_step", counted)
    alone = train_all(problem, tmp_path / "alone")
    steps = len(trained) // max(one.epochs for one in alone)
    epochs = sum(one.epochs for one in alone)
    assert sum(trained) == steps * epochs < len(trained) * len(problem.data.folds)
    monkeypatch.setattr(GradientFit, "_going_on", lambda run: bool(run.active.any()))
    together = train_all(problem, tmp_path / "together")
    for one, other in zip(alone, together):
        assert one.name == other.name
        assert (one.epochs, one.selected_epoch) == (other.epochs, other.selected_epoch)
        assert len(one.history) == one.epochs == len(other.history)
        for key, value in one.state.items():
            torch.testing.assert_close(value, other.state[key], rtol=1e-3, atol=1e-4)


def test_a_run_that_was_killed_after_folds_have_stopped_ends_alike(tmp_path):
    class Killed(Exception):
        pass

    def kill(run):
        checkpoints.save(names, run.snapshot(), always=True)
        if run.finished:
            raise Killed

    settings = {"epochs": 16, "patience": 2, "first_epoch": 1, "learning_rate": 3e-3}
    problem, _ = make_problem("gcn", **settings)
    names = [fold.name for fold in problem.data.folds]
    undisturbed = train_all(problem, tmp_path / "undisturbed")
    checkpoints = Checkpoints(tmp_path / "killed", "test", 1e9)
    with pytest.raises(Killed):
        GradientFit(problem, problem.data.folds, 1 << 30).run(kill, "test")
    problem, _ = make_problem("gcn", **settings)
    for one, other in zip(undisturbed, train(problem, checkpoints, None)):
        assert (one.name, one.history) == (other.name, other.history)
        assert all(torch.equal(value, other.state[key]) for key, value in one.state.items())


def test_every_fold_keeps_the_settings_that_its_validation_likes_best(tmp_path):
    problem, _ = make_problem("gcn", epochs=3, first_epoch=1)
    values = {"learning_rate": [1e-5, 3e-2], "dropout": [0.0, 0.5]}
    store = lambda here: Checkpoints(tmp_path, str(here.trial.hyperparameters), 1e9)  # noqa: E731
    ((results, tries),) = search([problem], values, store)
    assert [one["chosen"] for one in tries] == combinations(values)
    alone = [
        train_all(problem.with_hyperparameters(one["chosen"]), tmp_path / str(number))
        for number, one in enumerate(tries)
    ]
    for index, result in enumerate(results):
        scores = [
            (found[index].validation_auc, -found[index].validation_log_loss) for found in alone
        ]
        assert (result.validation_auc, -result.validation_log_loss) == max(scores)
        assert result.chosen == tries[scores.index(max(scores))]["chosen"]
    assert combinations({}) == [{}]


def test_folds_may_choose_settings_that_log_different_things(tmp_path):
    problem, _ = make_problem("cepg", folds=slice(0, 2))
    with_head, without = (
        train_all(
            problem.with_hyperparameters({"lambda_environment": weight}), tmp_path / str(weight)
        )
        for weight in (1.0, 0.0)
    )
    write_history(tmp_path / "history.csv", [without[0], with_head[1]])
    table = pd.read_csv(tmp_path / "history.csv")
    assert table["environment"].isna().tolist() == (table["fold"] == without[0].name).tolist()


def test_the_first_epoch_that_settings_raise_is_recorded(tmp_path):
    problem, _ = make_problem("irm", folds=slice(0, 2), epochs=8, first_epoch=1, warmup_share=0.25)
    chosen = [{"penalty_weight": weight} for weight in (1.0, 10.0)]
    results = [
        replace(
            train_all(problem.with_hyperparameters(one), tmp_path / str(number))[number], chosen=one
        )
        for number, one in enumerate(chosen)
    ]
    records = fold_records(problem, results, 1.0, chosen)
    assert [record["first_epoch"] for record in records] == [1, 3], "after a warm-up of two"


def test_stopped_folds_leave_a_gpu_where_that_saves_some_epochs():
    fit = SimpleNamespace(
        folds=range(4),
        epoch=10,
        risen_epoch=torch.tensor([1, 2, 6, 9]),
        hyperparameters=SimpleNamespace(patience=8, patient_until=0, epochs=30),
    )
    # The last fold trains until epoch 17 at least, without two of four.
    assert GradientFit._saved(fit, torch.tensor([2, 3])) == 7 / 2
    fit.hyperparameters.epochs = 14
    assert GradientFit._saved(fit, torch.tensor([2, 3])) == 4 / 2
    fit.hyperparameters = SimpleNamespace(patience=8, patient_until=20, epochs=30)
    assert GradientFit._saved(fit, torch.tensor([1, 2, 3])) == 18 / 4
    fit.active, fit.finished, kept = torch.tensor([False, True, True, True]), [], []
    fit._saved, fit._result = partial(GradientFit._saved, fit), lambda index: index
    fit._keep = lambda folds: kept.append(folds.tolist())
    # 4.5 epochs are saved now, and 3.75 with fewer epochs.
    for device, epochs, left in (("cuda", 25, 0), ("cuda", 30, 1), ("cpu", 25, 2)):
        fit.device, fit.hyperparameters.epochs = torch.device(device), epochs
        assert GradientFit._going_on(fit) and len(kept) == left
    assert kept == 2 * [[1, 2, 3]] and fit.finished == [0, 0]
