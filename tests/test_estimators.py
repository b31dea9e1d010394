"""SiteClassifier gives the workflow's numbers, in the manner of scikit-learn."""

import importlib.util
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator
from synthetic import make_cohort, make_problem, settings_of, train_all

from brio_core import SiteClassifier, estimators, load_cohort, load_demo, unseen_site_scores
from brio_core.cohorts.arrays import Scans
from brio_core.methods import registry
from brio_core.reporting.summary import summarise
from brio_core.training import in_memory
from brio_core.training.results import fold_logits


@pytest.fixture(scope="module")
def toy():
    """Scans, classes, sites and covariates of six small sites."""
    cohort, table = make_cohort()
    scans = Scans(cohort.series, "toy", fc=cohort.fc)
    return scans, table["label"].to_numpy(), cohort.site, cohort.covariates


def small(name: str) -> dict:
    values = vars(settings_of(name))
    return {key: list(one) if isinstance(one, tuple) else one for key, one in values.items()}


def test_the_scores_of_a_run_of_the_workflow(trained_demo_cell):
    run, files = trained_demo_cell
    given = load_cohort(files[1])
    table, predictions = unseen_site_scores(
        SiteClassifier("linear-correlation"), given.scans, given.y, given.sites, given.covariates,
        given.groups, return_predictions=True,
    )  # fmt: skip
    stored = pd.read_csv(run / "predictions.csv").query("split == 'test'").set_index("subject")
    stored = stored["logit"].loc[predictions["subject"]]
    np.testing.assert_allclose(predictions["logit"], stored, rtol=1e-6, atol=1e-7)
    rows, folds = summarise([run], "main")
    row, sites = rows.iloc[0], folds.set_index("fold")
    shared = ["n", "positives", "auc", "acc_threshold", "brier_recalibrated", "calibration_slope"]
    np.testing.assert_allclose(table.loc[sites.index, shared], sites[shared], rtol=1e-4)
    names = {"auc": "auc_mean", "auc_low": "auc_sites_low", "auc_high": "auc_sites_high"}
    names |= {one: one for one in ("auc_new_low", "auc_new_high")}
    np.testing.assert_allclose(
        table.loc["all", [*names]].astype(float), row[[*names.values()]].astype(float)
    )


@pytest.mark.parametrize("name", ["gcn", "brio", "linear-combat"])
def test_the_logits_of_a_run(name, toy, tmp_path, monkeypatch):
    monkeypatch.setattr(in_memory, "fold_block_length", lambda *given: 4.0)
    problem, _ = make_problem(name)
    results = train_all(problem, tmp_path)
    estimator = SiteClassifier(name, small(name))
    scans, y, sites, covariates = toy
    _, found = unseen_site_scores(estimator, scans, y, sites, covariates, return_predictions=True)
    for fold, result in zip(problem.data.folds, results):
        wanted = fold_logits(problem, result, fold)["test"]
        np.testing.assert_array_equal(found["logit"][fold.test], wanted)


@pytest.mark.parametrize("centre", ["none", "every-site"])
def test_a_fit_on_the_other_sites_is_a_fold(centre, toy):
    """Where all source sites train, also if the new one is met by its scans."""
    scans, y, sites, covariates = toy
    new = sites == "site2"
    estimator = SiteClassifier("linear-logarithm", {"centre": centre})
    _, run = unseen_site_scores(estimator, scans, y, sites, covariates, return_predictions=True)
    fitted = estimator.fit(scans[~new], y[~new], sites[~new], covariates[~new])
    found = fitted.decision_function(scans[new], covariates[new])
    np.testing.assert_allclose(found, run["logit"][new], rtol=1e-6)
    plain = fitted.decision_function(list(scans[new]), covariates[new])
    np.testing.assert_allclose(plain, found, atol=1e-5)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(scans[new], covariates[new]), found)


def test_connectivity_stands_for_series(toy):
    scans, y, sites, _ = toy
    one = SiteClassifier("linear-logarithm").fit(scans, y, sites)
    correlations = np.stack([np.corrcoef(scan.astype(float).T) for scan in scans])
    fisher_z = np.arctanh(correlations - np.eye(len(correlations[0])))
    for matrices in (correlations, fisher_z, list(correlations), list(fisher_z)):
        other = SiteClassifier("linear-logarithm").fit(matrices, y, sites)
        np.testing.assert_allclose(
            other.decision_function(matrices), one.decision_function(scans), atol=1e-4
        )


def test_a_region_without_values_does_not_cost_its_scan(toy):
    """As in a file of the workflow: it is a constant ROI."""
    scans, y, sites, _ = toy
    fitted = SiteClassifier().fit(scans, y, sites)
    missing, constant = scans[0].copy(), scans[0].copy()
    missing[:, 3], constant[:, 3] = np.nan, 7
    found = fitted.decision_function([missing, constant])
    assert np.isfinite(found).all() and found[0] == found[1]


# A site is met by all its scans, so what is said of one depends on the others.
MEETS = {"check_methods_subset_invariance": "ComBat meets a new site by all scans it is given"}


@pytest.mark.parametrize(
    "name, expected",
    [("linear-logarithm", {}), ("linear-correlation", {}), ("linear-combat", MEETS)],
)
def test_the_checks_of_scikit_learn(name, expected):
    estimator = SiteClassifier(name)
    found = check_estimator(estimator, on_skip=None, expected_failed_checks=expected)
    status = [one["status"] for one in found]
    assert status.count("passed") > 40 and status.count("xfail") == len(expected)


def test_pipelines_clones_and_other_estimators(toy):
    scans, y, sites, _ = toy
    features = np.stack([np.corrcoef(scan.T)[np.triu_indices(10, 1)] for scan in scans])
    ours = make_pipeline(StandardScaler(), SiteClassifier("linear-correlation"))
    fitted = clone(ours).fit(features, y, siteclassifier__sites=sites)
    assert fitted.predict_proba(features).shape == (len(y), 2)
    assert fitted.score(features, y) == np.mean(fitted.predict(features) == y)
    assert ours.get_params()["siteclassifier__seed"] == 0
    named = np.array(["control", "patient"])[y]
    assert set(SiteClassifier().fit(scans, named, sites).predict(scans)) == {"control", "patient"}
    theirs = make_pipeline(StandardScaler(), LogisticRegression(C=0.1))
    table = unseen_site_scores(theirs, features, y, sites)
    assert list(table.index) == [*np.unique(sites), "all"]
    assert table["auc"].drop("all").mean() == pytest.approx(table.loc["all", "auc"])


def test_the_demo_is_the_same_every_time():
    one, other = load_demo(), load_demo()
    np.testing.assert_array_equal(one.scans[3], other.scans[3])
    assert one.scans[one.sites == "Elm"].subjects == one.scans.subjects[42:56]
    table = unseen_site_scores(SiteClassifier(), one.scans, one.y, one.sites)
    assert 0.8 < table.loc["all", "auc"] < 1


@pytest.mark.parametrize("change, words", [
    ({"y": np.zeros(48)}, "y has 1 class, 0.0, but must name two classes"),
    ({"y": np.arange(48)}, "Only binary classification is supported"),
    ({"y": np.zeros(3)}, r"y has the shape \(3,\), but there are 48 scans"),
    ({"sites": np.zeros(3)}, r"sites has the shape \(3,\), but there are 48 scans"),
    ({"sites": ["a"] * 47 + [None]}, "sites has no value for scan 47; give one, or leave it out"),
    ({"sites": ["a", np.nan] * 24}, "sites has no value for scan 1"),
    ({"sites": pd.Series(["a", np.nan] * 24)}, "sites has no value for scan 1"),
    ({"y": np.array([0, 1, np.nan] * 16)}, "y has no value for scan 2"),
    ({"y": ["ill", "well", None] * 16}, "y has no value for scan 2"),
    ({"sites": ["a"] * 48}, "needs 2 or more sites to choose and train on, but there are 1: a"),
    ({"sites": ["a"] * 47 + ["b"]}, "site 'b' has one class only; leave it out"),
    ({"covariates": np.zeros((48, 2))}, "covariates must be numbers, one row for each of the 48"),
    ({3: lambda scan: scan[:, :9]}, "scan 3 cannot be used: wrong number of ROIs: 9 instead of 10"),
    ({5: lambda scan: scan * np.nan}, "scan 5 cannot be used: too many constant ROIs: 10 of 10"),
    ({5: lambda scan: scan * 0}, "scan 5 cannot be used: too many constant ROIs: 10 of 10, at"),
    ({5: lambda scan: scan[:3]}, "scan 5 cannot be used: too few frames: 3 of at least 20; leave"),
    ({5: lambda scan: scan * 1e30}, "scan 5 cannot be used: impossible values: up to"),
    ({5: lambda scan: np.corrcoef(scan.T)}, "scan 5 cannot be used: a matrix of connectivity, but"),
    ({"method": "gcnn"}, "method 'gcnn' has no code in .*; did you mean 'gcn'?"),
    ({"method": "linear-logaritm"}, "did you mean 'linear-logarithm'?"),
    ({"method": "svm"}, "method 'svm' has no code in .*; known: .*brio, "),
    ({"device": "gpu"}, "device is 'gpu', but must be cpu, cuda or auto"),
    ({"hyperparameters": {"penalty": 1}}, "unknown hyperparameter 'penalty'; known: "),
    ({"method": "gcn", "sites": ["a"] * 24 + ["b"] * 24}, "gcn needs 4 or more sites"),
    ({"method": "linear-confounds", "covariates": None}, "give covariates"),
    ({"scans": np.ones((48, 4, 4)), "method": "brio"}, "reads ROI series, but was given connect"),
    ({"scans": np.ones((48, 9)), "method": "gcn"}, "gcn needs to know the ROIs"),
    ({"scans": np.full((48, 4, 4), np.nan)}, "matrix 0 has missing or infinite values"),
    ({"scans": [np.eye(4)] * 47 + [np.eye(5)]}, "scan 0 is connectivity, but not all have its"),
    ({"scans": {"a": np.ones((60, 4))}}, "scans are a dict; give a list of"),
    ({"scans": {"a": np.ones((60, 4))}.values()}, "scans are a dict_values; give a list"),
    ({"scans": (one for one in "ab")}, "scans are a generator; give a list"),
    ({"scans": []}, "there are no scans; give one or more"),
])  # fmt: skip
def test_bad_input_is_one_sentence(change, words, toy):
    scans, y, sites, covariates = toy
    given = {"scans": list(scans), "y": y, "sites": sites, "covariates": covariates} | change
    for number, spoil in change.items():
        if isinstance(number, int):
            given["scans"][number] = spoil(given["scans"][number])
    estimator = SiteClassifier(
        given.get("method", "linear-logarithm"), given.get("hyperparameters"),
        device=given.get("device", "cpu"),
    )  # fmt: skip
    with pytest.raises(ValueError, match=words) as error:
        estimator.fit(given["scans"], given["y"], given["sites"], given["covariates"])
    assert "\n" not in str(error.value)


def test_a_cohort_is_a_folder(tmp_path):
    (tmp_path / "series.h5").touch()
    for path in (tmp_path / "series.h5", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match="is no folder; name that of a cohort"):
            load_cohort(path)


def test_an_array_of_scans_is_a_list_with_masks(toy):
    scans, y, sites, _ = toy
    held = np.empty(len(scans), object)
    held[:] = list(scans)
    new = sites == "site2"
    one = SiteClassifier().fit(held[~new], y[~new], sites[~new])
    other = SiteClassifier().fit(list(scans[~new]), y[~new], sites[~new])
    np.testing.assert_array_equal(
        one.decision_function(held[new]), other.decision_function(list(scans[new]))
    )
    table = unseen_site_scores(SiteClassifier(), held, y, sites)
    pd.testing.assert_frame_equal(table, unseen_site_scores(SiteClassifier(), list(held), y, sites))


def test_other_scans_than_the_fitted_ones(toy):
    scans, y, sites, _ = toy
    fitted = SiteClassifier().fit(scans, y, sites)
    for other in ([scan[:, :8] for scan in scans], np.ones((2, 10, 10)), np.ones((2, 10))):
        with pytest.raises(ValueError, match=r"expecting 10 features"):
            fitted.predict(other)
    alike = np.where(sites == "site2", 1, y)
    with pytest.raises(ValueError, match=r"^site 'site2' has one class only; leave it out$"):
        unseen_site_scores(SiteClassifier(), scans, alike, sites)
    with pytest.raises(ValueError, match="sites has the shape"):
        unseen_site_scores(SiteClassifier(), scans, y, None)
    with pytest.raises(ValueError, match="needs at least 5 usable sites"):
        unseen_site_scores(SiteClassifier(), scans, y, np.where(sites == "site0", "a", "b"))


def test_without_scikit_learn(toy, monkeypatch):
    for name in ("sklearn.base", "sklearn.utils.validation"):
        monkeypatch.setitem(sys.modules, name, None)
    spec = importlib.util.spec_from_file_location("alone", estimators.__file__)
    spec.loader.exec_module(alone := importlib.util.module_from_spec(spec))
    scans, y, sites, _ = toy
    fitted = alone.SiteClassifier().fit(scans, y, sites)
    assert fitted.predict_proba(scans[:2]).shape == (2, 2) and not hasattr(fitted, "get_params")


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.names())
def test_every_method_fits_and_predicts(name, toy):
    scans, y, sites, covariates = toy
    new = np.isin(sites, ["site4", "site5"])
    values = small(name)
    fitted = SiteClassifier(name, values | ({"epochs": 3} if "epochs" in values else {}))
    fitted.fit(scans[~new], y[~new], sites[~new], covariates[~new])
    found = fitted.predict_proba(scans[new], covariates[new])
    assert np.isfinite(found).all() and len(np.unique(found[:, 1])) > 1
    alone = pickle.loads(pickle.dumps(fitted)).predict_proba(scans[new], covariates[new])
    np.testing.assert_array_equal(alone, found)
