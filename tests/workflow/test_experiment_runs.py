"""Runs of experiments, and those without results."""

import json

import pytest

from tests.workflow.test_configuration import STUDY, configuration
from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load
from workflow.planning.outputs import items, shown_by
from workflow.planning.paths import Paths, Run
from workflow.planning.runs import canonical_variant, experiment_runs


def test_cells_are_chosen_by_cohorts_methods_and_seeds():
    resolved = configuration(seeds=[3, 4], methods=["gcn", "brio", "linear-correlation"])
    runs = experiment_runs(resolved, "main")
    assert len(runs) == 2 * (2 * 2 + 1)
    assert {run.seed for run in runs if run.variant == "linear-correlation"} == {3}
    permuted = experiment_runs(resolved, "permuted")
    assert len(permuted) == 5 * 3
    assert {run.seed for run in permuted} == {3}


def test_variants_and_protocols_may_have_other_seeds():
    def seeds(**words):
        methods = ["gcn", "brio", "linear-correlation"]
        resolved = configuration(seeds=[3, 4], methods=methods, variants="all", **words)
        found = {}
        for experiment in ("main", "ablations", "presets"):
            for run in experiment_runs(resolved, experiment):
                found.setdefault((experiment, *run[1:3]), []).append(run.seed)
        return found

    usual = seeds()
    changed = seeds(more_seeds={"brio": [7]}, protocol_seeds={"id": "first"})
    assert changed.pop(("main", "loso", "brio")) == [3, 4, 7]
    assert changed.pop(("ablations", "loso", "brio")) == [3, 4, 7], "the same row everywhere"
    for method in ("gcn", "brio"):
        assert usual["main", "id", method] == [3, 4]
        assert changed.pop(("main", "id", method)) == [3]
    assert changed.items() <= usual.items(), "and nothing else"
    assert seeds(protocol_seeds={"id": [9]})["main", "id", "gcn"] == [9]
    assert seeds(protocol_seeds={"loso": [9]})["presets", "loso", "gcn"] == [3], "asks for one"
    one = seeds(experiment_seeds={"ablations": "first"}, more_seeds={"brio": [7]})
    assert one["ablations", "loso", "brio"] == one["ablations", "loso", "brio-wo-rs"] == [3]
    assert one["main", "loso", "brio"] == [3, 4, 7], "other experiments keep theirs"


def test_a_method_without_chance_has_one_cell_for_all_experiments():
    resolved = configuration(
        methods=["gcn", "linear-correlation"], seeds=[3, 4], experiment_seeds={"diagnostics": [4]},
        experiments=["main", "diagnostics"], protocol_seeds={"id": [9]},
    )  # fmt: skip
    runs = {run for name in ("main", "diagnostics") for run in experiment_runs(resolved, name)}
    assert {run.seed for run in runs if run.variant == "linear-correlation"} == {3}
    assert ("loso", "gcn", 4) in {run[1:4] for run in runs}


def test_sweeps_are_shortened_by_variants():
    resolved = configuration()
    swept = {run.variant for run in experiment_runs(resolved, "sensitivity")}
    assert swept == {"brio", "brio-k2", "brio-j2"}
    resolved = configuration(variants="all")
    assert len(experiment_runs(resolved, "sensitivity")) == 9
    resolved = configuration(variants=[], experiments=["main"])
    assert {run.variant for run in experiment_runs(resolved, "ablations")} == {"brio"}


def test_a_variant_that_its_method_is_already_is_left_out():
    def found(experiment, **words):
        runs = experiment_runs(configuration(f"{STUDY}/config", **words), experiment)
        return {run.variant for run in runs}

    other = {"brio": {"reestimates": 16}}
    assert found("sensitivity") - found("sensitivity", overrides=other) == {"brio-k16"}
    assert found("presets", preset="published") == found("presets"), "rows of every method stay"


def test_a_reference_that_its_method_is_already_is_the_method():
    assert canonical_variant(configuration(), "brio-k2") == "brio-k2"
    resolved = configuration(overrides={"brio": {"reestimates": 2}})
    assert canonical_variant(resolved, "brio-k2") == "brio"
    study = configuration(f"{STUDY}/config")
    assert items(study, "tables")["harmonisation-comparison"].reference == "linear-correlation"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "brio"),
        ({"methods": ["gcn", "linear-tangent", "linear-correlation"]}, "linear-tangent"),
        ({"methods": ["gin", "gcn"]}, "gin"),
        ({"reference": "gcn"}, "gcn"),
    ],
)
def test_all_are_compared_with_what_is_stated_or_else_with_something(changes, expected):
    resolved = configuration(experiments=["main"], **changes)
    tables = items(resolved, "tables")
    assert tables["comparison"].reference.startswith(expected)
    assert f'"reference": "{expected}' in tables["comparison"].command
    if expected == "gcn":
        assert tables["ablation-checkpoints"].reference == "brio", "it shows no GCN"


def test_a_figure_per_cohort_shows_that_cohort():
    resolved = configuration("paper")
    names = [one.name for one in shown_by(resolved, "figures", ("diagnostics",))]
    assert [name for name in names if name.startswith("diagnostics-")] == [
        f"diagnostics-{cohort}" for cohort in resolved.config["cohorts"]
    ]
    figure = items(resolved, "figures")["diagnostics-srpbs-aal116"]
    assert {run.cohort for run in figure.runs} == {"srpbs-aal116"}
    assert "linear-confounds" not in {run.variant for run in figure.runs}, "nothing to diagnose"
    assert figure.entry["title"].endswith(": SRPBS")
    inputs = figure.made_of
    folders = inputs.pop("diagnostics")
    assert "results/diagnostics/srpbs-aal116/loso/brio/seed-0" in folders and not inputs
    assert len(folders) == len(figure.runs), "a folder for every run"


def test_what_cannot_be_diagnosed_is_not_called_missing():
    planned = items(configuration("paper"), "tables")["stability"].planned
    variants = {one["variant"] for one in planned["variants"]}
    assert "gcn" in variants and "linear-confounds" not in variants


def test_published_settings_are_a_variant_of_every_method_that_has_them():
    resolved = configuration("abide", methods=["gcn", "coral", "brio", "linear-tangent"])
    runs = experiment_runs(resolved, "presets")
    assert {run.variant for run in runs} == {
        "gcn", "gcn-published", "coral", "coral-published", "brio", "linear-tangent"
    }  # fmt: skip
    assert {run.seed for run in runs} == {0}
    params = resolved.train_params("gcn-published")
    published = resolved.methods["gcn"]["presets"]["published"]
    assert published.items() <= params["hyperparameters"].items()
    assert params["label"] == "GCN (published)" and params["method"] == "gcn"
    assert items(resolved, "tables")["presets"].made_of.keys() == {
        "summaries", "sites", "runs"
    }  # fmt: skip


def test_a_search_is_a_variant_of_every_method_that_has_one():
    def found(**words):
        methods = ["gcn", "coral", "brio", "linear-tangent"]
        resolved = configuration("abide", methods=methods, **words)
        return resolved, {run.variant for run in experiment_runs(resolved, "equal-effort")}

    resolved, usual = found()
    one_try = {"gcn", "coral", "brio", "linear-tangent"}
    assert usual == one_try | {"gcn-searched", "coral-searched", "brio-searched"}
    own, plain = (resolved.train_params(name) for name in ("gcn-searched", "gcn"))
    assert own["label"] == "GCN (searched)" and own["method"] == "gcn"
    assert own["hyperparameters"] == plain["hyperparameters"] and plain["search"] == {}
    assert own["search"] == resolved.methods["gcn"]["search"]
    fixed = found(overrides={"gcn": {"learning_rate": 0.01}, "brio": {"epochs": 40}})[1]
    assert usual - fixed == {"gcn-searched"}, "nothing is left to search"
    assert found(search=True)[1] == one_try, "all are searched under their own names"
    inputs = items(resolved, "tables")["equal-effort"].made_of
    assert inputs.keys() == {"summaries", "sites", "runs"}


def test_figures_about_brio_are_left_out_without_it():
    resolved = configuration(methods=["gcn"], experiments=["main"])
    left = ["diagnostics-demo", "abstention"]
    figures, tables = (
        [one.name for one in shown_by(resolved, kind, ("diagnostics",))]
        for kind in ("figures", "tables")
    )
    assert figures == left and "roi-profiles" not in tables


def test_the_paper_is_complete():
    resolved = configuration("paper")
    count = {name: len(experiment_runs(resolved, name)) for name in resolved.experiments}
    assert count["main"] == (17 * 5 + 6) * 5 * 2
    assert count["ablations"] == (4 + 1) * 5 * 5
    assert count["sensitivity"] == (8 + 1) * 5 * 5
    assert count["block-length"] == (2 + 1) * 5 * 5
    assert count["lambda-sweep"] == (5 + 1) * 5 * 5
    # All methods, five strengths without guidance, and without re-estimation support.
    assert count["diagnostics"] == ((17 + 6) * 5 + 6) * 5


WORDS = {"cohorts": ["demo"], "methods": ["gcn", "brio"], "seeds": [0, 1],
         "experiments": ["main", "diagnostics", "ablations"]}  # fmt: skip


def finish(results, protocol: str, variant: str, seed: int) -> None:
    """What a trained run leaves behind, as far as planning looks at it."""
    folder = results / Paths("").run(Run("demo", protocol, variant, seed)).lstrip("/")
    folder.mkdir(parents=True)
    for name in ("predictions.csv", "meta.json"):
        (folder / name).write_text("{}")


def test_runs_without_results_are_left_out_and_stay_planned(tmp_path):
    for run in (("loso", "gcn", 0), ("loso", "brio", 0), ("loso", "brio", 1)):
        finish(tmp_path, *run)
    found = load({**WORDS, "results": str(tmp_path), "untrained": "skip"})
    assert [run[1:4] for run in experiment_runs(found, "main")] == [
        ("loso", "gcn", 0), ("loso", "brio", 0), ("loso", "brio", 1)
    ]  # fmt: skip
    # BRIO alone is no ablation, and nothing has been diagnosed.
    assert found.config["experiments"] == ["main"]
    names = [one.name for one in shown_by(found, "tables", found.config["experiments"])]
    assert "main-loso" in names and "main-id" not in names and "scan-length" not in names
    finish(tmp_path, "loso", "brio-wo-rs", 0)
    found = load({**WORDS, "results": str(tmp_path), "untrained": "skip"})
    assert found.config["experiments"] == ["main", "ablations"], "diagnostics are to be made"
    everything = load({**WORDS, "results": str(tmp_path)})
    assert everything.config["experiments"] == WORDS["experiments"]
    assert len(experiment_runs(everything, "main")) == 8


def test_diagnostics_are_shown_once_they_have_been_made(tmp_path):
    finish(tmp_path, "loso", "brio", 0)
    folder = tmp_path / "diagnostics/demo/loso/brio/seed-0"
    folder.mkdir(parents=True)
    words = {**WORDS, "results": str(tmp_path), "untrained": "skip"}
    assert "diagnostics" not in load(words).config["experiments"]
    (folder / "meta.json").write_text(json.dumps({}))
    finish(tmp_path, "loso", "brio-wo-rs", 0)
    found = load(words)
    assert "diagnostics" in found.config["experiments"]
    assert load(words | {"experiments": ["main", "ablations", "diagnostics"]}).config[
        "experiments"
    ] == ["main", "ablations", "diagnostics"], "though its runs are those of others"
    shown = items(found, "figures")["diagnostics-demo"].runs
    assert [run.variant for run in shown] == ["brio"], "the other run is not diagnosed yet"


def test_nothing_at_all_is_said(tmp_path):
    words = {**WORDS, "results": str(tmp_path), "untrained": "skip"}
    with pytest.raises(ConfigurationError, match="skip' nothing is left"):
        load(words)


def test_a_look_in_between_trains_nothing(after_demo):
    runs = after_demo.folder / "results/runs/demo/loso"
    missing = sorted(runs.iterdir())[0].name
    for seed in (runs / missing).iterdir():
        (seed / "predictions.csv").unlink()
    assert "train" in {job[0] for job in after_demo.plan()}
    jobs = {job[0] for job in after_demo.plan("--config", "untrained=skip")}
    assert jobs and not jobs & {"train", "diagnose"}
