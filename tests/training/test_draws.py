"""Training on a draw: only drawn subjects count, and a draw of all sites is the plain run."""

import numpy as np
import pytest
from synthetic import make_cohort, make_problem, train_all

from brio_core.training.results import fold_logits, write_predictions
from brio_core.training.run import fold_records
from tests.methods.test_interface import replace_scans, same_state

ROWS = ("linear-logarithm", "linear-correlation", "gcn")


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("arm", ["sites", "subjects"])
def test_only_drawn_subjects_train(name, arm, tmp_path):
    cohort, table = make_cohort(n_sites=7)
    chosen = {"protocol": f"loso-{arm}-2-draw-1", "folds": slice(0, 1)}
    problem, split = make_problem(name, cohort, table, **chosen)
    fold, on_sources = split["folds"][0], problem.trial.trains_on_sources
    used = fold["sources"] if on_sources else [*fold["train"], *fold["validation"]]
    state = train_all(problem, tmp_path / "a")[0].state
    changed = make_cohort(n_sites=7, seed=1)[0]
    outside = np.setdiff1d(np.arange(len(cohort.subjects)), used)
    assert set(fold["test"]) < set(outside)
    other, _ = make_problem(name, replace_scans(cohort, changed, outside), table, **chosen)
    assert same_state(state, train_all(other, tmp_path / "b")[0].state)
    other, _ = make_problem(name, replace_scans(cohort, changed, used[:1]), table, **chosen)
    assert not same_state(state, train_all(other, tmp_path / "c")[0].state)


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.parametrize("same", ["loso-sites-9-draw-2", "loso-subjects-9-draw-2", "loso-one-fold"])
def test_a_draw_of_all_sites_or_one_fold_is_the_plain_run_byte_for_byte(name, same, tmp_path):
    cohort, table = make_cohort()
    written = []
    for protocol in ("loso", same):
        folds = slice(1 if same == "loso-one-fold" else 2)
        problem, _ = make_problem(name, cohort, table, protocol, folds=folds)
        results = train_all(problem, tmp_path / protocol)
        logits = [fold_logits(problem, *one) for one in zip(results, problem.data.folds)]
        write_predictions(tmp_path / f"{protocol}.csv", problem.data, logits)
        records = fold_records(problem, results, 1.0, [{}])
        written.append(((tmp_path / f"{protocol}.csv").read_bytes(), records))
    assert written[0] == written[1]


def test_results_say_how_many_train(tmp_path):
    cohort, table = make_cohort(n_sites=7)
    for name, n_sites in (("linear-logarithm", 3), ("linear-correlation", 3)):
        problem, _ = make_problem(name, cohort, table, "loso-sites-3-draw-1", slice(0, 2))
        for record in fold_records(problem, train_all(problem, tmp_path / name), 1.0, [{}]):
            assert (record["training_sites"], record["training_subjects"]) == (n_sites, 24)


def test_validation_subjects_outside_a_draw_are_predicted_by_the_model_itself(tmp_path):
    cohort, table = make_cohort(n_sites=7)
    problem, _ = make_problem("linear-logarithm", cohort, table, "loso-sites-2-draw-1")
    results = train_all(problem, tmp_path)
    drawn = 0
    for result, fold in zip(results, problem.data.folds):
        found = fold_logits(problem, result, fold)["validation"]
        inside = np.isin(fold.validation, fold.sources)
        drawn += inside.sum()
        assert len(found) == len(fold.validation) and np.isfinite(found).all()
        left_out = result.source_logits.numpy()[np.isin(fold.sources, fold.validation)]
        assert len(left_out) == inside.sum()
        np.testing.assert_array_equal(found[inside], left_out)
    assert 0 < drawn < sum(len(fold.validation) for fold in problem.data.folds)
