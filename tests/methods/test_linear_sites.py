"""Sites that are centred or harmonised before a linear row is fitted: equations and leaks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import inputs_of, make_cohort, make_problem, train_all
from test_interface import replace_scans, same_state

from brio_core.evaluation.diagnostics.fold import TrainedFold, diagnose_fold
from brio_core.evaluation.diagnostics.scans import Reestimates
from brio_core.methods.linear.exact import balanced_weights, ridge_grid
from brio_core.methods.linear.sites import ELSEWHERE, Centring, Combat, empirical_bayes
from brio_core.system.errors import BrioError
from brio_core.training.bundle import answers, refuse_bundle
from brio_core.training.results import fold_logits

CENTRED = ("linear-correlation", "linear-logarithm", "linear-reestimation")
OPTIONS = [(name, centre) for name in CENTRED for centre in ("train-sites", "every-site")]
ROWS = [*OPTIONS, ("linear-combat", None)]


def problem_of(name, centre, cohort, table, **chosen):
    chosen |= {} if centre is None else {"centre": centre}
    return make_problem(name, cohort, table, **chosen)[0]


def made_up(counts=(9, 6, 1, 12), features=7, seed=0):
    """Features, sites, and covariates some of which are not known."""
    generator = torch.Generator().manual_seed(seed)
    site = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    covariates = torch.randn(len(site), 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(site), features, generator=generator, dtype=torch.float64)
    slope, shift = torch.randn(2, len(counts), features, generator=generator, dtype=torch.float64)
    values = noise * (1 + site[:, None]) + shift[site] + covariates[:, :1] * slope[:1]
    return values, {"site_number": site, "covariates": covariates}


def test_centring_is_the_plain_reading():
    values, about = made_up()
    site = about["site_number"]
    view = Centring(7, meets=False).double()
    view.fit(values, about)
    means = torch.stack([values[site == one].mean(0) for one in range(4)])
    torch.testing.assert_close(view(values, about), values - means[site])
    unseen = {"site_number": torch.tensor([17, ELSEWHERE])}
    torch.testing.assert_close(view(values[:2], unseen), values[:2] - means.mean(0))
    view.meet(17, values[:5], {name: one[:5] for name, one in about.items()})
    found = view(values[:1], {"site_number": torch.tensor([17])})
    torch.testing.assert_close(found, values[:1] - values[:5].mean(0))


def fitted_combat(values, about):
    view = Combat(values.shape[1]).double()
    view.fit(values, about)
    return view


def test_combat_is_that_of_a_public_implementation(monkeypatch):
    public = pytest.importorskip("neuroCombat.neuroCombat", reason="neuroCombat is not installed")
    values, about = made_up(counts=(9, 6, 15, 12))
    table = pd.DataFrame(about["covariates"][:, :2].numpy(), columns=["age", "motion"])
    table["site"] = about["site_number"].numpy()
    # It stops at a relative change of 1e-4; the equations have one solution.
    plain = public.it_sol
    monkeypatch.setattr(public, "it_sol", lambda *given: plain(*given, conv=1e-12))
    expected = public.neuroCombat(
        values.T.numpy(), table, "site", continuous_cols=["age", "motion"]
    )
    view = fitted_combat(values, about)
    np.testing.assert_allclose(view(values, about).numpy(), expected["data"].T, atol=1e-6)
    estimates = expected["estimates"]
    np.testing.assert_allclose(view.sigma.square(), estimates["var.pooled"][:, 0], rtol=1e-6)
    location = view.shift[1:] / view.sigma
    np.testing.assert_allclose(location, estimates["gamma.star"], atol=1e-6)
    np.testing.assert_allclose(view.gain[1:] ** -2, estimates["delta.star"], rtol=1e-6)


def test_posterior_means_solve_their_equations():
    """The conditional posterior means of Johnson et al., each feature and site written out."""
    generator = np.random.default_rng(0)
    location, scale = generator.normal(size=(3, 8)), generator.gamma(4, 0.3, size=(3, 8))
    count = np.array([5, 9, 30])
    found, spread = empirical_bayes(*map(torch.as_tensor, (location, scale, count[:, None])))
    for s, n in enumerate(count):
        mean, width = location[s].mean(), location[s].var(ddof=1)
        usual, among = scale[s].mean(), scale[s].var(ddof=1)
        shape, rate = (2 * among + usual**2) / among, (usual * among + usual**3) / among
        for j in range(8):
            g, d = float(found[s, j]), float(spread[s, j])
            assert g == pytest.approx(
                (n * width * location[s, j] + d * mean) / (n * width + d), abs=1e-7
            )
            squares = (n - 1) * scale[s, j] + n * (location[s, j] - g) ** 2
            assert d == pytest.approx((rate + squares / 2) / (n / 2 + shape - 1), abs=1e-7)


def test_combat_is_defined_for_hard_sites():
    """One subject, unknown covariates, a constant feature, identical scans."""
    values, about = made_up()
    values[:, 2] = 3.0
    about["covariates"][::3, 0] = torch.nan
    about["covariates"][:, 1] = torch.nan
    view = fitted_combat(values, about)
    found = view(values, about)
    assert found.isfinite().all()
    assert torch.equal(found[:, 2], values[:, 2])
    assert (view.gain[3] == 1).all(), "one subject tells nothing about a scale"
    assert (view.shift[3, torch.arange(7) != 2] != 0).all()
    for same in (values[:1], values[:1].expand(4, -1)):
        alone = {name: one[: len(same)] for name, one in about.items()}
        view.meet(ELSEWHERE, same, alone)
        elsewhere = {**alone, "site_number": torch.full((len(same),), ELSEWHERE)}
        assert view(same, elsewhere).isfinite().all()


def test_sites_that_differ_by_location_and_scale_become_alike():
    generator = torch.Generator().manual_seed(0)
    site = torch.arange(400) % 4
    noise = torch.randn(400, 60, generator=generator, dtype=torch.float64)
    values = noise * (1 + site[:, None]) + 5 * site[:, None]
    about = {"site_number": site, "covariates": torch.zeros(400, 3)}
    found = fitted_combat(values, about)(values, about)
    for measure in (torch.mean, torch.std):
        by_site = torch.stack([measure(found[site == one], 0) for one in range(4)])
        assert by_site.mean(1).max() - by_site.mean(1).min() < 0.05


@pytest.mark.parametrize("name", ["linear-logarithm", "linear-correlation"])
@pytest.mark.parametrize("centre", ["train-sites", "every-site"])
def test_inner_predictions_are_those_of_an_unseen_site(name, centre):
    """Honest refits: a site that is left out is centred as an unseen one would be."""
    cohort, table = make_cohort()
    problem = problem_of(name, centre, cohort, table, selection="sources", folds=slice(0, 1))
    data = problem.data.on_sources()
    problem = replace(problem, data=data)
    view = problem.view(data.folds[0])
    module = problem.module(data.folds[0])
    edges = view.features["edges"][:].double()
    means = torch.stack([edges[view.site == one].mean(0) for one in range(view.n_sites)])
    scale = module.scale.double()
    for out in range(view.n_sites):
        inside = view.site != out
        others = means[torch.arange(view.n_sites) != out].mean(0)
        away = means[out] if centre == "every-site" else others
        train = (edges - means[view.site])[inside] * scale
        test = (edges[~inside] - away) * scale
        label = view.label[inside]
        if name == "linear-logarithm":
            sample = balanced_weights(view.site, view.label)[inside]
            ones, penalties = torch.ones(1, edges.shape[1]), problem.trial.hyperparameters.penalties
            fit = ridge_grid(train, 2 * label - 1, sample, ones.double(), penalties)
            weights, biases = fit[0][0], fit[1][0]
        else:
            weights, biases = module.solve(train, replace(view, label=label))
        expected = weights @ test.T + biases[:, None]
        found = module.inner_predictions[:, ~inside]
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "centre", "protocol"),
    [(*row, "loso") for row in ROWS] + [(*row, "id") for row in (ROWS[2], ROWS[3], ROWS[-1])],
)
def test_labels_of_test_and_scans_of_others_change_nothing(name, centre, protocol, tmp_path):
    cohort, table = make_cohort(per_class=10 if protocol == "id" else 4)
    chosen = {"folds": slice(0, 1), "protocol": protocol}
    problem = problem_of(name, centre, cohort, table, **chosen)
    fold = problem.data.folds[0]
    result = train_all(problem, tmp_path / "a")[0]
    logits = fold_logits(problem, result, fold)["test"]
    # The folds of an id split depend on the labels, so they are kept.
    other = problem_of(name, centre, cohort, table, **chosen)
    other.data.label = problem.data.label.copy()
    other.data.label[fold.test] = 1 - other.data.label[fold.test]
    again = train_all(other, tmp_path / "b")[0]
    assert same_state(result.state, again.state)
    assert np.array_equal(fold_logits(other, again, fold)["test"], logits)
    changed = replace_scans(cohort, make_cohort(seed=1, per_class=10)[0], fold.test[1:])
    other = problem_of(name, centre, changed, table, **chosen)
    again = train_all(other, tmp_path / "c")[0]
    first = fold_logits(other, again, fold)["test"][0]
    meets = protocol == "loso" and centre in ("every-site", None)
    assert (first == logits[0]) is np.bool_(not meets)


@pytest.mark.parametrize(("name", "centre"), [ROWS[0], ROWS[3], ROWS[-1]])
def test_diagnostics_work(name, centre, tmp_path):
    cohort, table = make_cohort()
    problem = problem_of(name, centre, cohort, table, folds=slice(0, 1))
    result, fold = train_all(problem, tmp_path)[0], problem.data.folds[0]
    module = problem.restored(fold, result.state, result.chosen)
    trained = TrainedFold(module, problem, fold, Reestimates(problem.data.scans(seed=0), 3))
    tables = diagnose_fold(trained, {"epsilon": 0.1, "scan_fractions": [0.5]})
    found = tables["folds"][0]
    assert all(np.isfinite(value) for value in found.values())
    assert len(tables["scan-length"]) == 3
    represented = module.represent(module.features(inputs_of(problem, fold.train)))
    site = problem.data.site_numbers(fold)
    means = torch.stack([represented[site == one].mean(0) for one in np.unique(site)])
    assert name == "linear-combat" or means.abs().max() < 1e-4, "as in training"


def test_scans_from_elsewhere_are_of_no_known_site(tmp_path):
    cohort, table = make_cohort()
    problem = problem_of("linear-correlation", "train-sites", cohort, table)
    result, fold = train_all(problem, tmp_path)[0], problem.data.folds[0]
    module = problem.restored(fold, result.state, result.chosen)
    (found,) = zip(*((part.logits,) for part in answers(module, cohort.series)))
    np.testing.assert_allclose(
        np.concatenate(found)[fold.test],
        fold_logits(problem, result, fold)["test"],
        rtol=1e-5,
        atol=1e-5,
    )


@pytest.mark.parametrize(("name", "centre"), ROWS)
def test_what_asks_the_other_scans_of_a_site_is_no_bundle(name, centre):
    problem = problem_of(name, centre, *make_cohort(), folds=slice(0, 1))
    module = problem.trial.method(problem.trial.hyperparameters, 10, 3)
    if module.meets_sites:
        with pytest.raises(BrioError, match="the other scans of a new site"):
            refuse_bundle(module)
    else:
        refuse_bundle(module)


def test_rows_say_that_they_see_unlabelled_scans():
    rois = make_cohort()[0].series.rois
    for name, centre in ROWS:
        trial = problem_of(name, centre, *make_cohort()).trial
        notes = trial.method.notes(rois, trial.hyperparameters)
        assert bool(notes) == (centre != "train-sites")
        assert all("unlabelled scans" in note for note in notes)
