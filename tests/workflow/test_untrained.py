"""A look at what there is: runs without results are neither trained nor shown."""

import json

import pytest

from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load
from workflow.planning.outputs import item_runs, output_names
from workflow.planning.paths import Paths, Run
from workflow.planning.runs import experiment_runs

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
    names = output_names(found, "tables", tuple(found.config["experiments"]))
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
    shown = item_runs(found, "figures", "diagnostics-demo")
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
