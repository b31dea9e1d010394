"""What diagnostics ask a trained fold: of whom, on which threads, how exactly."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem

from brio_core.evaluation.diagnostics import fold as folds
from brio_core.evaluation.diagnostics.fold import TrainedFold, diagnose_fold
from brio_core.evaluation.diagnostics.scans import Reestimates, SharedFeatures
from brio_core.system.residence import gather
from tests.evaluation.test_diagnostics import SETTINGS


@pytest.mark.parametrize("name", ["gcn", "linear-correlation"])
def test_full_scan_column_and_reestimates_belong_to_the_same_subjects(name):
    cohort, table = make_cohort()
    problem, _ = make_problem(name, cohort, table)
    fold = problem.data.folds[0]
    module = problem.module(fold)
    if name.startswith("linear"):
        module.fit(1)
    reestimates = Reestimates(problem.data.scans(0), 4)
    (logits,) = TrainedFold(module.eval(), problem, fold, reestimates).responses("logits")
    assert logits.shape == (len(fold.train), 5)
    # Re-estimates of a subject are closer to its own full scan than to other subjects'.
    distance = (logits[:, None, :1] - logits[None, :, 1:]).abs().mean(-1)
    own, others = distance.diagonal().mean(), distance.mean()
    assert own < others


@pytest.mark.parametrize("protocol", ["one site", "several sites", "one class"])
def test_variation_of_held_out_subjects_equals_a_slow_reading(protocol):
    """By site and class: mean squared change of the logit over variance and separation."""
    cohort, table = make_cohort()
    problem, _ = make_problem("gcn", cohort, table)
    data, fold = problem.data, problem.data.folds[0]
    rows = fold.test
    if protocol == "several sites":
        # The last site lends one subject, so it has no second class and does not count.
        rows = np.concatenate([rows, data.folds[1].test, data.folds[2].test[:1]])
    if protocol == "one class":
        rows = rows[data.label[rows] == 1]
    trained = TrainedFold(
        problem.module(fold).eval(), problem, replace(fold, test=rows),
        Reestimates(data.scans(0), 4), threshold=float(np.median(data.label) / 50),
    )  # fmt: skip
    (logits,) = trained.responses("logits", rows=trained.fold.test)
    found, people = trained.held_out_variation(logits), trained.held_out_subjects(logits)
    logits = trained.responses("logits", rows=rows)[0].numpy()
    for row, one, own in zip(rows, people, logits, strict=True):
        assert (one["subject"], one["label"]) == (cohort.subjects[row], data.label[row])
        assert one["margin"] == pytest.approx(own[0] - trained.threshold)
        same = [(again > trained.threshold) == (own[0] > trained.threshold) for again in own[1:]]
        assert one["agreement"] == sum(same) / 4
        assert one["deviation"] == pytest.approx(np.sqrt(np.mean((own[1:] - own[1:].mean()) ** 2)))
    if protocol == "one class":
        assert found is None
        return
    ratios = []
    for site in np.unique(cohort.site[fold.test if protocol == "one site" else rows[:-1]]):
        own = cohort.site[rows] == site
        sides = [logits[own & (data.label[rows] == side)] for side in (0, 1)]
        separation = (sides[1][:, 0].mean() - sides[0][:, 0].mean()) ** 2 / 4
        for side in sides:
            change = np.mean((side[:, 1:] - side[:, :1]) ** 2)
            ratios.append(change / (side[:, 0].var() + separation + 1e-8))
    assert found == pytest.approx(np.mean(ratios), rel=1e-6)


@pytest.mark.parametrize("name", ["gcn", "xg-gnn"])
@pytest.mark.parametrize("budget", [10**9, 0])
def test_features_that_folds_share_give_the_answers_that_their_own_would(name, budget, monkeypatch):
    cohort, table = make_cohort(n_sites=5, per_class=3)
    problem, _ = make_problem(name, cohort, table)
    features, calls = problem.trial.method.features, []
    monkeypatch.setattr(
        problem.trial.method, "features", lambda *words: calls.append(1) or features(*words)
    )
    reestimates = Reestimates(problem.data.scans(0), 2)
    shared = SharedFeatures(budget)
    for fold in problem.data.folds[:3]:
        module = problem.module(fold).eval()
        calls.clear()
        answers = [
            TrainedFold(module, problem, fold, reestimates, kept).responses("logits")[0]
            for kept in (shared, None)
        ]
        torch.testing.assert_close(*answers)
    # Full scans and re-estimates by the second alone, unless there was no room to share.
    assert len(calls) == (2 if budget else 4)


def test_linear_models_answer_on_several_threads(monkeypatch):
    cohort, table = make_cohort()
    problem, _ = make_problem("linear-tangent", cohort, table)
    fold, before = problem.data.folds[0], torch.get_num_threads()
    module = problem.module(fold).eval()
    module.fit(1)
    data = TrainedFold(module, problem, fold, Reestimates(problem.data.scans(0), 3))
    represent, seen = problem.trial.method.represent, []

    def noted(self, features):
        seen.append((len(features["covariance"]), threading.get_ident()))
        return represent(self, features)

    monkeypatch.setattr(problem.trial.method, "represent", noted)
    found = {}
    try:
        for threads in (1, 2):
            seen.clear()
            torch.set_num_threads(threads)
            found[threads] = data.responses("represent", "logits")
            sizes, names = zip(*seen)
            assert max(sizes) == folds.CHUNK
            assert (threading.get_ident() in names) == (threads == 1), "else others work"
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, found[1], found[2])), "the same bytes"
    whole = module.represent(module.features(gather(problem.inputs, torch.as_tensor(fold.train))))
    torch.testing.assert_close(found[1][0][:, 0], whole.double())


@pytest.mark.parametrize("precision, expected", [("tf32", "high"), ("float32", "highest")])
def test_models_multiply_as_in_training_and_measurements_exactly(precision, expected, monkeypatch):
    cohort, table = make_cohort(n_sites=5, per_class=3)
    problem, _ = make_problem("gcn", cohort, table, precision=precision)
    seen: dict[str, set] = {}

    def noting(place, name):
        real = getattr(place, name)

        def noted(*words):
            seen.setdefault(name, set()).add(torch.get_float32_matmul_precision())
            return real(*words)

        monkeypatch.setattr(place, name, noted)

    for name in ("features", "represent", "logits"):
        noting(problem.trial.method, name)
    for place, name in ((folds, "site_discrepancy"), (Reestimates, "fc"), (folds, "shortened")):
        noting(place, name)
    module, fold = problem.module(problem.data.folds[0]).eval(), problem.data.folds[0]
    torch.set_float32_matmul_precision("highest")
    diagnose_fold(
        TrainedFold(module, problem, fold, Reestimates(problem.data.scans(0), 2)), SETTINGS
    )
    for name in ("features", "represent", "logits"):
        assert seen.pop(name) == {expected}
    assert set(seen) == {"site_discrepancy", "fc", "shortened"}
    assert set.union(*seen.values()) == {"highest"}
