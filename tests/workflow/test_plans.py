"""What each target plans, what a dry run says about it, and GPU hours from measured seconds."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from brio_core.system.files import read_json, write_json
from workflow.planning.files import ConfigurationError, read_yaml
from workflow.planning.hours import Size, cohort_size, estimate, read_times, report
from workflow.planning.loading import load

DEMO_JOBS = {
    "tables": {"train": 15, "table": 28, "figure": 0, "index": 0, "diagnose": 6},
    "figures": {"train": 14, "table": 0, "figure": 15, "diagnose": 6},
    "data": {"train": 0, "table": 4, "figure": 3, "site_profile": 1, "diagnose": 0},
    "diagnostics": {"train": 6, "table": 5, "figure": 5, "diagnose": 6},
    "ablations": {"train": 5, "table": 2, "figure": 1, "diagnose": 0},
    "permuted": {"train": 15, "split": 5, "summarise": 5, "table": 1},
}


def cost(text: str) -> dict[str, int]:
    """The numbers under 'What it will cost'."""
    lines = text.split("What it will cost")[1]
    jobs = re.search(r"jobs +([\d,]+)", lines)[1]
    runs = re.search(r"training runs +([\d,]+) to train, ([\d,]+) of ([\d,]+) done", lines)
    numbers = [jobs, *runs.groups()]
    keys = ("jobs", "to_train", "trained", "runs")
    return {key: int(number.replace(",", "")) for key, number in zip(keys, numbers)}


def counts(jobs: set, expected: dict[str, int]) -> dict[str, int]:
    """How many jobs the rules of ``expected`` have."""
    rules = [job[0] for job in jobs]
    return {rule: rules.count(rule) for rule in expected}


@pytest.mark.parametrize("target", DEMO_JOBS)
def test_targets_of_the_demo(project, target):
    assert counts(project.plan(target), DEMO_JOBS[target]) == DEMO_JOBS[target]


def test_a_model_needs_runs_that_tell_what_to_expect_of_it(project):
    jobs = [job[0] for job in project.plan("model", "--config", "method=linear-logarithm")]
    assert (jobs.count("train"), jobs.count("model_bundle"), jobs.count("table")) == (1, 1, 0)
    for words, sentence in (
        ((), "which model is not said; write --config method=linear-logarithm"),
        (("--config", "method=fc-hgnn"), "without the scans of its training subjects"),
        (("--config", "method=linear-logaritm"), "did you mean 'linear-logarithm'?"),
    ):
        done = project.snakemake("-n", "model", *words)
        assert done.returncode == 1 and sentence in done.stdout


def test_a_plan_leaves_nothing_behind(project):
    done = project.snakemake("-n", "-q", "all")
    assert done.returncode == 0, "the dry run writes no report and does not fail"
    assert cost(done.stdout)["to_train"] == 15, "quiet plans tell the cost too"
    assert not (project.folder / "results").exists()
    assert not (project.folder / "data").exists()


def test_the_whole_paper_is_at_most_1200_jobs(project):
    done = project.snakemake("--configfile", "config/paper.yaml", "-n", "-q")
    assert done.returncode == 0, done.stdout
    numbers = cost(done.stdout)
    # Main table, ablations, K and J, block length, strength of alignment.
    assert numbers["to_train"] == 900 + 100 + 200 + 60 + 125
    assert numbers["jobs"] <= 1200
    assert "not known, since none of these methods was timed here" in done.stdout


def test_known_times_are_told(after_demo):
    after_demo.edit("config/methods/gcn.yaml", "dropout: 0.5", "dropout: 0.4")
    done = after_demo.snakemake("-n", "-q")
    numbers = cost(done.stdout)
    assert numbers.pop("jobs") > 2, "and what hangs on them"
    assert numbers == {"to_train": 2, "trained": 13, "runs": 15}
    # The stand-in reports half an hour per run.
    assert "training time   about 60.0 minutes one after the other\n" in done.stdout


def test_times_of_another_cohort_serve_until_there_are_own(after_demo):
    words = ("--configfile", "config/abide.yaml", "-n", "-q")
    done = after_demo.snakemake(*words, "--config", "methods=[brio,gat]", "experiments=[main]")
    assert "about 10.0 hours" in done.stdout
    assert "and 20 runs of methods that were never timed" in done.stdout


def test_a_failed_plan_has_no_cost(project):
    done = project.snakemake("no-such-target", "-n")
    assert done.returncode == 1
    assert "What it will cost" not in done.stdout


def test_other_entry_and_other_directory(project, tmp_path):
    jobs = project.plan()
    assert ("all",) in jobs, "the default target is everything"
    expected = {"train": 15, "diagnose": 6, "table": 28, "figure": 15, "index": 1}
    assert counts(jobs, expected) == expected
    assert project.plan("--snakefile", "workflow/Snakefile") == jobs
    words = ("--snakefile", str(project.folder / "Snakefile"), "--directory", str(tmp_path / "out"))
    (tmp_path / "out").mkdir()
    few = ("--config", "experiments=[main]", "methods=[gcn]")
    done = project.snakemake(*words, *few, "--cores", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "out/results/index.html").exists()
    assert not (project.folder / "results").exists()


def test_own_files_in_the_working_directory(project, tmp_path):
    folder = tmp_path / "lab"
    (folder / "config/datasets").mkdir(parents=True)
    (folder / "config/config.yaml").write_text("cohorts: [mine]\nmethods: [gcn]\nseeds: [7]\n")
    (folder / "config/datasets/mine.yaml").write_text(
        "cohort: mine\n"
        "source: {kind: series, folder: mine, pattern: 'series/{subject}.tsv'}\n"
        "columns: {subject: id, site: site, label: diagnosis}\n"
        "label: {positive: patient, negative: control}\n"
        "rois: {expected: 100}\n"
    )
    jobs = project.plan("--directory", str(folder))
    assert ("train", "mine", "loso", "gcn", "7") in jobs
    assert not any(job[0] == "make_demo" for job in jobs)


ROOT = Path(__file__).resolve().parents[2]
TIMES = """A GPU; made up: 1,000 subjects, 20 sites, loso, seed 0

| method | tries | epochs | seconds | peak GB |
| --- | --- | --- | --- | --- |
| gcn | 1 | 100 | 10.0 | 1.0 |
| coral | 1 | 50 | 5.0 | |
| coral | 3 | 100 | 30.0 | |
| irm | 1 | 200 | 2.0 | |
| start of a run | | | 3.0 | |
"""


@pytest.fixture
def times(tmp_path):
    path = tmp_path / "times.md"
    path.write_text(TIMES)
    return read_times(path)


def configuration(methods, **changes):
    config = {"cohorts": ["abide-cc200"], "methods": methods, "seeds": [0, 1]}
    return load(config | changes)


@pytest.mark.parametrize(
    ("method", "changes", "seconds"),
    [
        ("gcn", {}, 20.0),
        ("gcn", {"overrides": {"all": {"epochs": 50}}}, 5.0),
        ("coral", {"search": True}, 60.0),
        ("coral", {}, 20.0),
        ("irm", {"search": True}, 3 * 2.0),
    ],
    ids=["twice the epochs", "half of them", "a search that was timed", "no search", "one not"],
)
def test_cells_are_scaled_by_subjects_folds_and_epochs(times, tmp_path, method, changes, seconds):
    found, _ = estimate(configuration([method], **changes), times, tmp_path)
    assert {key: len(runs) for key, runs in found.items()} == {"abide-cc200": 4, "main": 4}
    # The paper's table: 1,025 subjects of 20 sites, and ten folds under the protocol id.
    share = 1025 / 1000 * (20 + 10) / 20
    # One start for both seeds.
    assert sum(found["main"]) == pytest.approx(2 * (seconds * share + 3.0))
    assert found["abide-cc200"] == found["main"]


def test_a_cell_of_two_experiments_is_counted_once(times, tmp_path):
    both = configuration(["gcn"], experiments=["main", "diagnostics"])
    assert "diagnostics" not in estimate(both, times, tmp_path)[0]


def test_what_is_not_known_is_said_and_linear_methods_use_no_gpu(times, tmp_path):
    some = configuration(["gcn", "gat", "linear-tangent"], cohorts=["abide-cc200", "demo"])
    text = report(some, times, tmp_path, "some.yaml")
    assert "| main | 4 |" in text and text.endswith("time or size is not known: demo, gat.")


def test_subjects_that_are_there_count_before_those_of_the_paper(tmp_path):
    assert cohort_size("abide-aal116", tmp_path) == Size(1025, 20)
    assert cohort_size("mine", tmp_path) is None
    path = tmp_path / "cohorts" / "mine" / "participants.tsv"
    path.parent.mkdir(parents=True)
    path.write_text("subject\tsite\na\tx\nb\ty\nc\tx\n")
    assert cohort_size("mine", tmp_path) == Size(3, 2)


@pytest.mark.parametrize("text", ["", "words\n", "A; 5 subjects, 2 sites\n\n| a |\n|---|\n| 1 |\n"])
def test_other_files_are_refused(tmp_path, text):
    (tmp_path / "x.md").write_text(text)
    with pytest.raises(ConfigurationError, match=r"x\.md is no table of benchmarks/methods\.py"):
        read_times(tmp_path / "x.md")


def test_the_benchmark_prints_what_is_read(bundles, tmp_path):
    folder, _, _, table = bundles
    (tmp_path / "linear-logarithm").mkdir()
    (tmp_path / "linear-logarithm/seed-0").symlink_to(folder / "run")
    program = [sys.executable, ROOT / "benchmarks/methods.py", tmp_path]
    run = {"capture_output": True, "text": True, "env": {"PYTHONPATH": str(ROOT)}}
    (tmp_path / "times.md").write_text(subprocess.run(program, **run, check=True).stdout)
    times = read_times(tmp_path / "times.md")
    assert times.measured == Size(len(table), table["site"].nunique())
    assert times.rows["start of a run"][0] > 0
    assert "at once" not in (tmp_path / "times.md").read_text()
    # Another method trained for longer than has passed, so some shared the machine.
    meta = read_json(folder / "run/meta.json") | {"training_seconds": 1e6}
    (tmp_path / "gcn/seed-0").mkdir(parents=True)
    write_json(tmp_path / "gcn/seed-0/meta.json", meta)
    text = subprocess.run(program, **run, check=True).stdout
    assert re.search(r"Some trained at once: \d+ s passed", text)


def test_the_page_of_the_paper_is_what_the_program_prints(tmp_path):
    """After a change of the configuration: see docs/cluster.md for the command."""
    configfile = "config/paper.yaml"
    times = read_times(ROOT / "docs/benchmarks/cuda-methods.md")
    # An empty folder, so that cohorts which somebody has here do not count.
    text = report(load(read_yaml(ROOT / configfile)), times, tmp_path, configfile)
    assert (ROOT / "docs/benchmarks/gpu-hours.md").read_text() == text + "\n"


def test_program(tmp_path):
    program = [sys.executable, ROOT / "scripts/estimate_hours.py"]
    options = ["--configfile", ROOT / "config/abide.yaml"]
    run = {"capture_output": True, "text": True, "env": {"PYTHONPATH": str(ROOT)}, "cwd": tmp_path}
    done = subprocess.run([*program, *options], **run, check=True)
    assert "| abide-cc200 | 265 |" in done.stdout
    done = subprocess.run([*program, "--configfile", "absent.yaml"], **run)
    assert done.returncode == 1 and done.stderr.startswith("error: ")
