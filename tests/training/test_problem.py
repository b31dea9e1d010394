"""Data and trial: what a run shares between the hyperparameters that it tries."""

from dataclasses import FrozenInstanceError

import pytest
from synthetic import make_problem

from brio_core.training.checkpoints import fingerprint


def test_other_hyperparameters_leave_the_trial_as_it_is_and_share_its_scans():
    problem, _ = make_problem("brio", hidden=8)
    other = problem.with_hyperparameters({"hidden": 4})
    assert (problem.trial.hyperparameters.hidden, other.trial.hyperparameters.hidden) == (8, 4)
    assert other.data is problem.data and other.inputs["fc"] is problem.inputs["fc"]
    assert other.scans.bold is problem.scans.bold
    assert problem.with_hyperparameters({}) is problem
    with pytest.raises(FrozenInstanceError):
        problem.trial.seed = 1


def test_what_is_fitted_on_all_folds_belongs_to_its_hyperparameters():
    problem, _ = make_problem("linear-reestimation", folds=slice(0, 2))
    few, many = (problem.with_hyperparameters({"reestimates": count}) for count in (2, 5))
    name = problem.data.folds[0].name
    changes = [one.shared_statistics[name]["change"] for one in (few, many)]
    assert (changes[0] != changes[1]).any()


@pytest.mark.parametrize("what", ["inputs", "code", "hyperparameters"])
def test_unfinished_work_belongs_to_its_inputs_code_and_hyperparameters(what):
    problem, _ = make_problem("gcn")
    mark = fingerprint(problem, {"fc.h5": "one"}, "code")
    changed = {
        "inputs": lambda: fingerprint(problem, {"fc.h5": "two"}, "code"),
        "code": lambda: fingerprint(problem, {"fc.h5": "one"}, "other"),
        "hyperparameters": lambda: fingerprint(
            problem.with_hyperparameters({"hidden": 4}), {"fc.h5": "one"}, "code"
        ),
    }
    assert mark == fingerprint(make_problem("gcn")[0], {"fc.h5": "one"}, "code")
    assert mark != changed[what]()
