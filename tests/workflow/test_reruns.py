"""A run repeats what a change concerns, and nothing else; what becomes of trained models."""

import gzip

import pytest
import torch

from brio_core.system.errors import BrioError
from brio_core.training.results import MODEL_FORMAT, MODEL_VERSION, read_models, write_tensors

SWEPT = (
    "wo-rs",
    "wo-tr",
    "wo-sm",
    "wo-sf",
    "wo-qg-lambda0",
    "wo-qg-lambda1",
    "k2",
    "j2",
    "block2x",
)
ALL_RUNS = {
    ("demo", protocol, variant, "0")
    for protocol in ("loso", "id")
    for variant in ("gcn", "brio", "linear-correlation")
} | {("demo", "loso", f"brio-{name}", "0") for name in SWEPT}


def runs_of(jobs, rule="train"):
    return {tuple(values) for name, *values in jobs if name == rule}


def runs_with(method):
    return {run for run in ALL_RUNS if run[2].startswith(method)}


def rules_of(jobs):
    return {job[0] for job in jobs}


AFTER_TRAINING = {"diagnose", "summarise", "table", "figure", "methods_text", "index", "all"}
# The page about settings is made again whenever a setting changes.
SETTINGS = {("table", "settings"), ("table", "settings-others")}


def test_second_run_has_nothing_to_do(after_demo):
    """Comments and docstrings do not count as a change."""
    after_demo.append("brio_core/training/trainer.py", "\n\n# A remark.\n")
    after_demo.edit("brio_core/methods/gcn.py", '"""GCN: ', '"""Changed words. GCN: ')
    after_demo.append("config/methods/gcn.yaml", "# A remark.\n")
    done = after_demo.snakemake("--cores", "1")
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "variant"),
    [
        ("config/methods/gcn.yaml", "dropout: 0.5", "dropout: 0.4", "gcn"),
        ("config/config.yaml", "warmup_epochs: 5", "warmup_epochs: 4", "brio"),
        ("brio_core/methods/gcn.py", 'name = "gcn"', 'name = "gcn"\n    changed = 1', "gcn"),
        ("brio_core/methods/brio/factors.py", "import torch\n", "import torch, math\n", "brio"),
    ],
    ids=["setting", "override", "module", "package"],
)
def test_one_method_changes(after_demo, file, old, new, variant):
    after_demo.edit(file, old, new)
    jobs = after_demo.plan()
    assert runs_of(jobs) == runs_with(variant)
    assert rules_of(jobs - SETTINGS) == {"train"} | AFTER_TRAINING
    # Other runs are not looked at again, unless by the code of BRIO's factors, which changed.
    again = runs_of(jobs, "diagnose")
    assert again < (ALL_RUNS if "brio/" in file else runs_with(variant))


def test_shared_training_code_changes(after_demo):
    after_demo.append("brio_core/training/trainer.py", "\nCHANGED = 1\n")
    jobs = after_demo.plan()
    assert runs_of(jobs) == ALL_RUNS
    assert rules_of(jobs) == {"train"} | AFTER_TRAINING


def test_code_of_everything_changes(after_demo):
    after_demo.append("brio_core/system/files.py", "\nCHANGED = 1\n")
    jobs = after_demo.plan()
    assert runs_of(jobs) == ALL_RUNS
    assert {"make_demo", "extract", "connect", "split", "blocklength"} <= rules_of(jobs)


def test_what_a_table_or_figure_is_made_of_makes_that_one_again(after_demo):
    """Its code, the paper's numbers, a remark on a setting; nothing is trained or diagnosed."""
    figures = {
        "training": {"training"},
        "diagnostics": {"diagnostics-demo"},
        "reestimation": {"scan-length", "abstention", "roi-profiles"},
        "results": {"main-loso", "main-loso-column", "main-id", "ablations"},
        "brio": {"propositions", "sensitivity", "method"},
    }
    for module in (*(f"figures/{name}" for name in figures), "tables/claims"):
        after_demo.append(f"brio_core/reporting/{module}.py", "\nCHANGED = 1\n")
    after_demo.append("config/paper/numbers.csv", "loso,demo,loso,gcn,GCN,auc_mean,%,50.0\n")
    after_demo.edit("config/methods/brio.yaml", "# sd of initial queries", "# deviation of queries")
    expected = {("figure", name) for names in figures.values() for name in names}
    expected |= {("table", name) for name in ("datasets", "efficiency", "claims", "paper_vs_ours")}
    assert after_demo.plan() == expected | SETTINGS | {("index",), ("all",)}


def test_lost_predictions_rerun_their_runs_and_what_hangs_on_them(after_demo):
    lost = {("demo", "loso", "brio-k2", "0"), ("demo", "id", "gcn", "0")}
    for cohort, protocol, variant, seed in lost:
        folder = after_demo.folder / f"results/runs/{cohort}/{protocol}/{variant}/seed-{seed}"
        (folder / "predictions.csv").unlink()
    jobs = after_demo.plan()
    assert runs_of(jobs) == lost
    assert runs_of(jobs, "summarise") == {("sensitivity", "demo", "loso"), ("main", "demo", "id")}
    assert ("figure", "sensitivity") in jobs and ("figure", "main-loso") not in jobs
    assert not runs_of(jobs, "diagnose"), "neither is diagnosed"
    tables = runs_of(jobs, "table")
    assert {("main-id",), ("paper_vs_ours",), ("claims",)} <= tables
    assert not {("main-loso",), ("settings",)} & tables


def test_words_about_a_cohort_extract_nothing(after_demo):
    after_demo.edit("config/datasets/demo.yaml", "title: Demo cohort", "title: Our cohort")
    words = {"table", "figure", "subjects", "methods_text", "index", "all"}
    assert rules_of(after_demo.plan() - SETTINGS) == words


def test_another_machine_retrains_nothing(after_demo):
    after_demo.edit("config/config.yaml", "device: cpu", "device: auto")
    assert rules_of(after_demo.plan() - SETTINGS) == {"methods_text", "index", "all"}


def test_a_new_seed_trains_only_its_cells_in_one_job_per_variant(after_demo):
    after_demo.edit("config/config.yaml", "seeds: [0]", "seeds: [0, 1, 4]")
    cores = ("--cores", "2")
    jobs = after_demo.plan(*cores)
    variants = {run[1:3] for run in ALL_RUNS if run[2] != "linear-correlation"}
    assert runs_of(jobs) == {("demo", *one, "1+4") for one in variants}, "linear rows have no seeds"
    assert {run[3] for run in runs_of(jobs, "diagnose")} == {"1+4"}
    alone = "results/runs/demo/loso/gcn/seed-4/predictions.csv"
    assert {run[3] for run in runs_of(after_demo.plan(alone))} == {"4"}, "a file is asked for"
    assert {run[3] for run in runs_of(after_demo.plan("--cores", "16"))} == {"1", "4"}
    done = after_demo.snakemake(*cores)
    assert done.returncode == 0 and "train demo loso gcn seed 1+4 " in done.stdout
    assert "Nothing to be done" in after_demo.snakemake(*cores).stdout
    # What is lost of one seed is made again without the others.
    (after_demo.folder / alone).unlink()
    jobs = after_demo.plan(*cores)
    assert runs_of(jobs) == {("demo", "loso", "gcn", "4")}
    assert runs_of(jobs, "diagnose") == {("demo", "loso", "gcn", "4")}


def test_dropped_models_cost_nothing_later(project):
    words = ("--cores", "2", "--config", "model_files=drop", "experiments=[diagnostics]")
    done = project.snakemake(*words)
    assert done.returncode == 0, done.stdout
    results = project.folder / "results"
    assert list(results.glob("runs/**/predictions.csv"))
    assert not list(results.glob("runs/**/models.pt"))
    assert (results / "diagnostics/demo/loso/brio/seed-0/folds.csv").exists()
    assert "Nothing to be done" in project.snakemake(*words).stdout


def test_compression_retrains_nothing(after_demo):
    rules = {job[0] for job in after_demo.plan("--config", "model_files=compress")}
    pages = {"table", "methods_text", "index", "all"}
    assert rules == pages, "only the pages that show the configuration"
    words = ("--config", "model_files=compress", "--forceall", "-n", "--printshellcmds")
    commands = after_demo.snakemake(*words).stdout
    assert commands.count(" --compress-models >") == commands.count("scripts/train.py") > 0


@pytest.mark.parametrize("compress", [False, True])
def test_models_are_read_either_way(tmp_path, compress):
    path = tmp_path / "models.pt"
    settings = {"penalties": [1.0]}
    content = {
        "format": MODEL_FORMAT, "version": MODEL_VERSION, "method": "linear-tangent",
        "hyperparameters": settings, "n_rois": 4, "folds": ["A"], "n_sites": [3],
        "states": [{"weight": torch.arange(1000.0)}], "chosen": [{}],
    }  # fmt: skip
    write_tensors(path, content, compress)
    assert (path.read_bytes()[:2] == b"\x1f\x8b") == compress
    assert torch.equal(read_models(path).states[0]["weight"], torch.arange(1000.0))


def test_a_compressed_model_that_is_cut_off(tmp_path):
    path = tmp_path / "models.pt"
    path.write_bytes(gzip.compress(b"x" * 1000)[:-10])
    with pytest.raises(BrioError, match="not a model file"):
        read_models(path)
