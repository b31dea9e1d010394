"""Methods read the kinds of connectivity that they declare."""

import numpy as np
import pytest
import torch
from synthetic import make_cohort, make_problem, settings_of
from test_interface import METHODS, replace_scans, same_state, states

from brio_core.connectivity import FISHER_Z, LOGARITHM
from brio_core.connectivity.graphs import upper_triangle
from brio_core.connectivity.kinds import connectivity_of
from brio_core.methods import registry
from brio_core.methods.interface import GradientMethod
from brio_core.system.errors import BrioError

READERS = [name for name in METHODS if LOGARITHM in registry.find(name).Hyperparameters.kinds]
OTHERS = sorted(set(METHODS) - set(READERS))


def test_most_methods_read_all_kinds():
    assert OTHERS == ["core", "deci", "fc-hgnn", "linear-confounds", "linear-tangent"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_kind_that_a_method_does_not_read_is_refused(name):
    with pytest.raises(BrioError, match="connectivity is 'logarithm', but must be one of fisher-z"):
        settings_of(name, connectivity=LOGARITHM)


@pytest.mark.parametrize("shrinkage", [0.0, -0.1, 1.5])
def test_shrinkage_has_a_range(shrinkage):
    with pytest.raises(BrioError, match="shrinkage is"):
        settings_of("gcn", connectivity=LOGARITHM, shrinkage=shrinkage)


@pytest.mark.parametrize("name", READERS)
def test_nothing_fitted_depends_on_other_scans(name):
    """The factor of a fold is part of what is fitted."""
    cohort, table = make_cohort()
    few = {"epochs": 3} if issubclass(registry.find(name), GradientMethod) else {}
    chosen = {"folds": slice(0, 1), "connectivity": LOGARITHM, **few}
    problem, _ = make_problem(name, cohort, table, **chosen)
    outside = np.setdiff1d(np.arange(len(cohort.subjects)), problem.data.folds[0].train)
    replaced = replace_scans(cohort, make_cohort(seed=1)[0], outside)
    other, _ = make_problem(name, replaced, table, **chosen)
    fitted = states(problem)[1]
    assert same_state(fitted, states(other)[1])
    plain, _ = make_problem(name, cohort, table, **chosen | {"connectivity": FISHER_Z})
    assert not same_state(fitted, states(plain)[1])


def test_a_kind_has_the_spread_of_fisher_z():
    problem, _ = make_problem("gcn", connectivity=LOGARITHM)
    fold = problem.data.folds[0]
    fisher_z = torch.as_tensor(np.asarray(problem.data.cohort.fc))[fold.train]
    read = problem.module(fold).connectivity(fisher_z)
    torch.testing.assert_close(upper_triangle(read).std(), upper_triangle(fisher_z).std())
    factor = read[0, 0, 1] / connectivity_of(fisher_z[0], LOGARITHM, 0.6)[0, 1]
    assert factor > 1.5


def test_reestimates_are_of_the_same_kind():
    """BRIO is asked about re-estimates in Fisher z and about full scans: one reading of both."""
    problem, _ = make_problem("brio", connectivity=LOGARITHM)
    module = problem.module(problem.data.folds[0])
    module.anchored.fill_(0.1)
    fisher_z = torch.as_tensor(np.asarray(problem.data.cohort.fc))[:5]
    asked = module.contributions_of_fc(fisher_z)
    kept = module.contributions(module.make_features({"fc": module.connectivity(fisher_z)}))
    torch.testing.assert_close(asked, kept)
    support = module.support
    read = module.connectivity(torch.as_tensor(np.asarray(problem.data.cohort.fc)))
    assert (upper_triangle(support).sum() > 0) and read.isfinite().all()


def test_fisher_z_has_no_factor():
    assert (
        "connectivity_factor"
        not in make_problem("gcn")[0].module(make_problem("gcn")[0].data.folds[0]).state_dict()
    )
    assert settings_of("gcn").connectivity == FISHER_Z
