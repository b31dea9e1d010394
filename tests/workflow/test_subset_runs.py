"""Runs on fewer subjects: draws of learning curves, and subjects matched by motion."""

import pytest

from tests.workflow.test_configuration import FIVE_LINES, configuration
from workflow.planning.files import ConfigurationError
from workflow.planning.outputs import active_pairs
from workflow.planning.runs import experiment_runs


def only_main(**words):
    return configuration(experiments=["main"], **words)


def test_a_learning_curve_is_loso_and_its_draws():
    curve = {"sites": [5, 3], "draws": 2}
    resolved = only_main(methods=["gcn", "linear-correlation"], learning_curve=curve)
    runs = experiment_runs(resolved, "learning-curve")
    assert {run.variant for run in runs} == {"linear-correlation"}, "exact methods by default"
    protocols = [run.protocol for run in runs]
    assert protocols[:3] == ["loso", "loso-sites-3-draw-1", "loso-sites-3-draw-2"]
    assert protocols[-1] == "loso-subjects-5-draw-2" and len(protocols) == 1 + 2 * 2 * 2
    assert runs[0] in experiment_runs(resolved, "main"), "all sites are the run that is there"
    networks = only_main(learning_curve=curve | {"variants": ["gcn"]}, seeds=[0, 1])
    assert len(experiment_runs(networks, "learning-curve")) == 2 * len(protocols)
    with pytest.raises(ConfigurationError, match="unknown variant 'gnc'; did you mean"):
        configuration(learning_curve={"variants": ["gnc"]})


def test_motion_is_matched_where_it_is_known(elsewhere):
    def protocols(cohort):
        resolved = only_main(cohorts=[cohort], methods=["gcn"])
        return {run.protocol for run in experiment_runs(resolved, "motion-matched")}

    elsewhere("datasets", "mine", FIVE_LINES)
    assert protocols("abide-cc200") == protocols("demo") == {"loso", "loso-motion-matched"}
    assert protocols("mine") == {"loso"}


def test_the_whole_run_leaves_draws_aside():
    changed = ["learning-curve", "motion-matched", "one-fold"]
    resolved = configuration(methods=["linear-correlation"], experiments=["main", *changed])
    assert {pair[2] for pair in active_pairs(resolved, changed=False)} == {"loso", "id"}
    assert len({pair[2] for pair in active_pairs(resolved)}) == 2 + 8 + 1 + 1
