"""A study: a configuration with files of its own beside it, and names that earlier versions had."""

import pytest

from tests.workflow.test_configuration import ROOT, STUDY, configuration
from workflow.planning.documents import document_files
from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load
from workflow.planning.outputs import WHOLE_RUN, shown_by
from workflow.planning.paths import Paths, Run
from workflow.planning.runs import experiment_runs
from workflow.planning.schema import KEYS, TARGETS

EXPERIMENT = """\
title: A try
variants:
  gcn-wide: {method: gcn, label: Wide, hyperparameters: {hidden: 128}}
runs:
  - {protocols: [loso], variants: [gcn, gcn-wide]}
outputs:
  tables:
    - name: a-try
"""


@pytest.fixture
def study(tmp_path):
    """A folder with one experiment, and a function that loads a configuration in it."""
    (tmp_path / "experiments").mkdir()
    path = tmp_path / "experiments" / "a-try.yaml"
    path.write_text(EXPERIMENT)
    (tmp_path / "config.yaml").write_text("cohorts: [demo]\n")
    config = {"cohorts": ["demo"], "methods": ["gcn"], "experiments": ["a-try"], "seeds": [0]}

    def read(old: str = "", new: str = "", **changes):
        path.write_text(EXPERIMENT.replace(old, new))
        return load(config | changes, [tmp_path / "config.yaml"], {*config, *changes})

    return read


def test_an_experiment_defines_variants(study):
    found = study()
    assert {run.variant for run in experiment_runs(found, "a-try")} == {"gcn", "gcn-wide"}
    params, usual = (found.train_params(name) for name in ("gcn-wide", "gcn"))
    assert params["hyperparameters"] == usual["hyperparameters"] | {"hidden": 128}
    assert (params["method"], params["label"]) == ("gcn", "Wide")
    seeds = [run.seed for run in experiment_runs(study(more_seeds={"gcn-wide": [5]}), "a-try")]
    assert seeds == [0, 0, 5], "like a variant of the method's file"
    searched = study("128}", "128}, search: {dropout: [0.2, 0.5]}")
    assert searched.train_params("gcn-wide")["search"] == {"dropout": [0.2, 0.5]}
    assert not params["search"] and not searched.train_params("gcn")["search"]
    same = study("hidden: 128", f"hidden: {usual['hyperparameters']['hidden']}")
    assert {run.variant for run in experiment_runs(same, "a-try")} == {"gcn"}
    assert "main" in found.experiments, "the others are there too"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("method: gcn,", "method: gcnn,", "unknown method 'gcnn'; did you mean 'gcn'?"),
        ("method: gcn,", "", "key 'variants.gcn-wide.method' is missing"),
        ("hidden: 128", "hiden: 128", "hyperparameters: unknown hyperparameter 'hiden'"),
        ("hidden: 128", "hidden: wide", "'hidden' must be like 64, not 'wide'"),
        ("hidden: 128", "hidden: 0", "hidden is 0, but must be above 0"),
        ("128}", "128}, search: {droput: [0, 1]}", "search: unknown hyperparameter 'droput'"),
        ("gcn-wide", "gin", "variant 'gin' is also defined by method 'gin'"),
        ("gcn-wide", "brio-k2", "variant 'brio-k2' is also defined by method 'brio'"),
    ],
)
def test_mistakes_in_its_variants_are_named(study, old, new, problem):
    with pytest.raises(ConfigurationError) as error:
        study(old, new)
    assert problem in str(error.value)
    assert "experiments/a-try.yaml: " in str(error.value)


def test_two_experiments_cannot_define_one_variant(study, tmp_path):
    text = EXPERIMENT.replace("name: a-try", "name: another")
    (tmp_path / "experiments" / "another.yaml").write_text(text)
    with pytest.raises(ConfigurationError, match="also defined by experiment 'a-try'"):
        study()


def test_what_a_study_brings_is_seen_with_its_configuration_only():
    own = {path.stem for path in (ROOT / STUDY / "experiments").glob("*.yaml")}
    assert own == {"last-questions", "nested-choice", "best-row", "all-scans"}
    product, inside = configuration("abide"), configuration(f"{STUDY}/config")
    assert own.isdisjoint(product.experiments) and own < set(inside.experiments)
    added = set(inside.variants) - set(product.variants)
    assert {"brio-subjects1", "linear-logarithm-validation"} < added and len(added) == 9
    assert inside.find("documents", "abide-cc200").is_relative_to(ROOT / STUDY)


def test_files_beside_the_results_stand_before_those_of_the_repository(elsewhere):
    elsewhere("experiments", "mine", "title: M\nruns: [{}]\n")
    assert "mine" in configuration("paper").experiments, "whichever configuration is used"


def test_a_study_can_be_planned(project):
    config = ("--configfile", f"{STUDY}/config.yaml")
    jobs = project.plan("last-questions", *config)
    assert ("train", "abide-cc200", "loso", "brio-bias0", "0+1+2") in jobs
    assert ("table", "last-questions") in jobs


def test_a_run_keeps_its_folder_while_it_is_usual():
    run = Run("demo", "loso", "brio", 3)
    assert Paths("r").run(run) == "r/runs/demo/loso/brio/seed-3"
    assert Paths("r").diagnostics(run) == "r/diagnostics/demo/loso/brio/seed-3"
    other = run._replace(ring=2)
    assert Paths("r").run(other) == "r/runs/demo/loso/brio/seed-3-ring-2"


# --- names of earlier versions ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("experiments", "title: M\ncells: [{}]\n"),
        (
            "experiments",
            "title: M\nruns: [{}]\noutputs: {figures: [{name: a, program: training}]}\n",
        ),
        (
            "methods",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {a: 1}}\n"
            "variants: {mine-2: {label: K, settings: {a: 2}}}\n",
        ),
        (
            "methods",
            "method: mine\nlabel: M\ngroup: Ours\npresets: {common: {subjects_per_cell: 4}}\n",
        ),
    ],
)
def test_old_keys_of_files_are_told_the_new_ones(elsewhere, kind, text):
    elsewhere(kind, "mine", text)
    with pytest.raises(ConfigurationError) as error:
        configuration()
    new = {"cells": "runs", "settings": "hyperparameters", "program": "figure"}
    new["subjects_per_cell"] = "subjects_per_site_class"
    expected = next(new[key] for key in new if key in text)
    assert f"renamed to '{expected}'" in str(error.value)
    assert str(error.value).startswith(f"config/{kind}/mine.yaml: ")


def test_old_keys_of_the_configuration_are_told_the_new_ones():
    with pytest.raises(ConfigurationError, match="'foreign'; it was renamed to 'external'"):
        configuration(foreign={})
    with pytest.raises(ConfigurationError, match="renamed to 'subjects_per_site_class'"):
        configuration(overrides={"brio": {"subjects_per_cell": 8}})
    with pytest.raises(ConfigurationError, match="unknown key 'settings'; ") as error:
        configuration(settings={})
    assert "renamed" not in str(error.value), "it was never one of these"
    assert set(KEYS) == {"cells", "settings", "foreign", "program", "split_seed"}


def test_old_targets_are_told_where_they_are(project):
    done = project.snakemake("second-round", "-n")
    assert done.returncode == 1 and "Traceback" not in done.stdout
    said = done.stdout[done.stdout.index("error: ") :]
    assert said == f"error: the target 'second-round' was {TARGETS['second-round']}\n"
    assert "studies/abide-cc200/README.md says how" in said


def test_the_run_of_the_document_on_abide():
    """Three seeds of all, five of BRIO, one where sites were seen in training; then its pages."""
    resolved = configuration(f"{STUDY}/config")
    runs = experiment_runs(resolved, "main")
    unseen = [run for run in runs if run.protocol == "loso"]
    assert len(unseen) == 16 * 3 + 5 + 6
    assert len(runs) - len(unseen) == 17 + 6
    scans = experiment_runs(resolved, "all-scans")
    assert {run.cohort for run in runs} == {"abide-cc200"}, "the other is not named"
    assert {run.cohort for run in scans} == {"abide-cc200", "abide-cc200-all"}
    assert {run.seed for run in scans} == {0} and len(scans) == 8
    files = document_files(resolved)
    assert {"results/tables/kinds.csv", "results/tables/main-id.csv"} <= {*files["tables"]}
    assert "results/tables/main-id.json" in files["printed"]
    assert "results/tables/kinds.json" not in files["printed"], "which shows some columns"
    assert "results/figures/diagnostics-abide-cc200.png" in files["figures"]
    tables = {path.split("/")[-1].removesuffix(".csv") for path in files["tables"]}
    names = [one.name for one in shown_by(resolved, "tables", resolved.config["experiments"])]
    left_out = {"sites", "regions", "datasets", "site-scores", "checkpoints", "harmonisation"}
    left_out |= {name for name in names if name.endswith("-checkpoints")}
    assert tables - {*WHOLE_RUN} == {*names} - left_out
