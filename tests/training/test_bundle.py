"""A model of all sites in one file: what is inside, what it says, and what to expect of it."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from synthetic import METHODS, make_cohort, settings_of, train_all

from brio_core.cohorts.splits import all_sites
from brio_core.cohorts.stores import read_fc, read_series
from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.evaluation.scores import auc
from brio_core.evaluation.site_distance import Training, describe, edges_of
from brio_core.methods import registry
from brio_core.reporting.card import card, write_card
from brio_core.reporting.model import expectation
from brio_core.reporting.results import read_run
from brio_core.system.errors import BrioError
from brio_core.training.bundle import Bundle, answers, read_bundle, refuse_bundle, write_bundle
from brio_core.training.data import TrainingData, folds_of
from brio_core.training.final import chosen_by_folds
from brio_core.training.problem import Problem, Trial
from brio_core.training.results import predict_rows


def test_probabilities_are_those_of_series_that_were_read_and_of_no_others(bundles):
    folder, cohort, *_ = bundles
    bundle, series = read_bundle(folder / "all.brio"), read_series(cohort / "series.h5")
    every = bundle.probabilities(series)
    few = replace(series, subjects=series.subjects[:3], offsets=series.offsets[:4])
    np.testing.assert_allclose(bundle.probabilities(few), every[:3], rtol=1e-12)
    first, again = (
        np.concatenate([part.again for part in answers(bundle.module, one, 5, 4.0)])
        for one in (few, series)
    )
    np.testing.assert_allclose(first, again[:3], rtol=1e-5)
    assert again.std() > 0 and again.shape == (len(series), 5)
    # By hand: the weights on the standardised logarithms of shrunk correlations.
    z = fisher_z_connectivity(series.scan(0).astype(float)).astype(np.float32)
    matrix = 0.4 * np.tanh(z.astype(float))
    np.fill_diagonal(matrix, 1)
    values, vectors = np.linalg.eigh(matrix)
    edges = (vectors * np.log(values) @ vectors.T)[np.triu_indices(len(matrix), 1)]
    state = {name: value.double().numpy() for name, value in bundle.state.items()}
    logit = (edges - state["mean"]) * state["scale"] @ state["weight"] + state["bias"]
    decision = bundle.about["decision"]
    slow = 1 / (1 + np.exp(-(decision["slope"] * logit + decision["intercept"])))
    assert every[0] == pytest.approx(slow, abs=1e-5)


def test_what_to_expect_is_that_of_the_stored_predictions(bundles):
    folder, _, site, _ = bundles
    run = read_run(folder / "run")
    found = read_bundle(folder / "all.brio").about["expectation"]
    aucs = run.test.groupby("site").apply(lambda own: auc(own["label"], own["logit"]))
    assert found["auc"]["value"] == pytest.approx(aucs.mean())
    assert {one["site"]: one["auc"] for one in found["by_site"]} == pytest.approx(dict(aucs))
    assert found["new_site"]["low"] < found["auc"]["low"] < found["auc"]["high"]
    threshold = {fold["name"]: fold["threshold"] for fold in run.meta["folds"]}
    said = run.test["logit"] > run.test["fold"].map(threshold)
    hits = said[run.test["label"] == 1].groupby(run.test["site"]).mean()
    assert found["at_threshold"]["sensitivity"]["value"] == pytest.approx(hits.mean())
    assert {one["name"] for one in found["subgroups"]} == {"women", "men", "young", "middle", "old"}
    without = read_bundle(folder / "without.brio").about
    assert site not in {one["site"] for one in without["expectation"]["by_site"]}
    assert site not in {one["site"] for one in without["training"]["sites"]}
    assert without["expectation"] == expectation([run], {}, [site]) | {
        "subgroups": without["expectation"]["subgroups"]
    }


def test_distances_are_the_plain_reading(bundles):
    folder, cohort, *_ = bundles
    _, fc = read_fc(cohort / "fc.h5")
    table = pd.read_csv(cohort / "participants.tsv", sep="\t", dtype=str)
    site = table["site"].to_numpy()
    edges = edges_of(fc[np.arange(len(site))]).astype(float)
    means = {one: edges[site == one].mean(0) for one in np.unique(site)}
    rest = np.array([own - means[where] for own, where in zip(edges, site)])
    deviation = np.sqrt((rest**2).sum(0) / (len(site) - len(means)))
    found = describe(lambda rows: fc[rows], site)
    other = [
        min(np.sqrt(np.mean(((own - mean) / deviation) ** 2))
            for name, mean in means.items() if name != where)
        for own, where in zip(edges, site)
    ]  # fmt: skip
    np.testing.assert_allclose(found.distances, np.percentile(other, np.arange(1, 100)), rtol=1e-5)
    assert found.percentile(np.array([0.0, 1e9])).tolist() == [0, 99]
    stored = read_bundle(folder / "all.brio").arrays
    np.testing.assert_allclose(stored["means"], np.stack(list(means.values())), atol=1e-6)


def test_few_scans_do_not_look_far():
    """Sites that differ by nothing, and one that is half a deviation away in every edge."""
    draw = np.random.default_rng(0).normal
    training = Training(draw(size=(2, 4000)) / 10, np.ones(4000), np.zeros(0), np.zeros(0))
    for count in (3, 30):
        mean = draw(size=(1, 4000)) / np.sqrt(count)
        for shift in (0.0, 0.5):
            found = training.of_means(mean + shift, [count], [100, 100])
            np.testing.assert_allclose(found**2, shift**2, atol=0.05)


def test_nothing_of_a_single_subject_is_inside_and_equal_bundles_are_equal_files(bundles, tmp_path):
    folder, _, _, table = bundles
    bundle = read_bundle(folder / "all.brio")
    text = json.dumps(bundle.about)
    assert not any(f'"{subject}"' in text for subject in table["subject"])
    count = len(table)
    assert all(count not in value.shape for value in bundle.state.values())
    write_bundle(tmp_path / "again.brio", bundle)
    assert (tmp_path / "again.brio").read_bytes() == (folder / "all.brio").read_bytes()


def test_the_card_tells_it_in_words(bundles, tmp_path):
    folder, *_ = bundles
    write_card(folder / "all.brio", tmp_path)
    text, page = ((tmp_path / f"card.{end}").read_text() for end in ("md", "html"))
    for words in ("Not for clinical use", "class 1 (patient)", "What to expect at a new site",
                  "The true AUC at a new site lies between", "Calibration slope",
                  " was chosen by an inner leave-one-site-out", "1e+06, 100000, "):  # fmt: skip
        assert words in text and words in page
    assert page == (folder / "all" / "card.html").read_text()
    bundle = read_bundle(folder / "all.brio")
    value = bundle.about["expectation"]["auc"]["value"]
    assert f"| AUC | {100 * value:.1f} [" in text
    title, _ = card(Bundle(bundle.about | {"label": "<b>"}, {}, {}))
    assert title.startswith("Model card: <b>")


def test_folds_choose_for_a_network_and_it_trains_that_long(
    bundles, trained_demo_cell, run_script, method_params
):
    folder, cohort, *_ = bundles
    files = trained_demo_cell[1]
    change = {"epochs": 4, "patience": 0, "hidden": 8, "precision": "float32"}
    params = json.dumps(method_params("gcn", **change))
    words = ("--variant", "gcn", "--params", params, "--seed", 3, "--device", "cpu")
    trained = run_script("train", *files, *words, "--out-dir", folder / "gcn")
    assert trained.returncode == 0, trained.stderr
    made = run_script(
        "model", "--cohort-dir", cohort, "--runs", folder / "gcn", "--params", params,
        "--settings", "{}", "--device", "cpu", "--out", folder / "gcn.brio",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    run, about = read_run(folder / "gcn"), read_bundle(folder / "gcn.brio").about
    epochs = [fold["selected_epoch"] for fold in run.meta["folds"]]
    assert about["chosen"]["epoch_or_point"] == int(np.floor(np.median(epochs) + 0.5))
    assert not list(folder.glob(".*unfinished"))
    # Scores of left-out subjects decide about threshold and calibration.
    series = read_series(cohort / "series.h5")
    probabilities = read_bundle(folder / "gcn.brio").probabilities(series)
    assert probabilities.std() > 0 and 0.2 < probabilities.mean() < 0.8


def test_most_folds_choose_and_their_median_epoch_counts():
    folds = [{"chosen": {"a": a}, "selected_epoch": e} for a, e in ((1, 9), (2, 3), (2, 4), (2, 8))]
    assert chosen_by_folds([{"folds": folds[:2]}, {"folds": folds[2:]}]) == ({"a": 2}, 4)
    assert chosen_by_folds([{"folds": [folds[1], folds[2]]}]) == ({"a": 2}, 4)


def test_a_method_that_asks_its_training_subjects_is_refused(
    bundles, run_script, method_params, tmp_path
):
    folder, cohort, *_ = bundles
    assert registry.find("fc-hgnn").needs_population
    made = run_script(
        "model", "--cohort-dir", cohort, "--runs", folder / "run",
        "--params", json.dumps(method_params("fc-hgnn")), "--settings", "{}", "--device", "cpu",
        "--out", tmp_path / "fc-hgnn.brio",
    )  # fmt: skip
    assert made.returncode == 1 and not (tmp_path / "fc-hgnn.brio").exists()
    assert "fc-hgnn cannot predict without the scans of its training subjects" in made.stderr


def test_states_survive_the_file(tmp_path):
    state = {
        "a.b": torch.arange(3),
        "c": torch.tensor(True),
        "d": torch.zeros((), dtype=torch.float64),
    }
    write_bundle(tmp_path / "x.brio", Bundle({"n": [1, None]}, state, {"m": np.ones((2, 2))}))
    found = read_bundle(tmp_path / "x.brio")
    assert found.about == {"n": [1, None]} and found.arrays["m"].shape == (2, 2)
    for name, value in state.items():
        assert found.state[name].dtype == value.dtype and torch.equal(found.state[name], value)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in METHODS.glob("*.yaml")))
def test_every_method_predicts_from_its_bundle_as_from_its_cohort_or_is_refused(name, tmp_path):
    cohort, table = make_cohort(n_sites=5, per_class=3)
    split = all_sites(table, cohort.name)
    folds = folds_of(split, lambda fold: 4.0)
    trial = Trial(registry.find(name), settings_of(name), name, 0)
    trial = trial if trial.trains_on_sources else replace(trial, stop=3)
    problem = Problem(TrainingData(cohort, split, folds, torch.device("cpu")), trial)
    if name in ("fc-hgnn", "linear-combat"):
        with pytest.raises(BrioError, match=f"{name} cannot predict without"):
            refuse_bundle(trial.method(trial.hyperparameters, 10, 5))
        return
    (result,) = train_all(problem, tmp_path)
    assert trial.stop is None or result.selected_epoch == trial.stop
    about = {"method": name, "hyperparameters": dict(vars(trial.hyperparameters)), "n_sites": 5}
    about |= {"rois": {"names": list(cohort.series.rois.names)}}
    write_bundle(tmp_path / "x.brio", Bundle(about, result.state, {}))
    module = read_bundle(tmp_path / "x.brio").module
    parts = list(answers(module, cohort.series, 2, 4.0, cohort.covariates))
    trained = problem.restored(folds[0], result.state, {})
    expected = predict_rows(trained, problem.inputs, np.arange(len(table)))
    np.testing.assert_allclose(np.concatenate([p.logits for p in parts]), expected, atol=1e-5)
    assert all(np.isfinite(part.again).all() for part in parts)
