"""GPU hours of a configuration from measured seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

from workflow.planning.files import ConfigurationError, read_yaml
from workflow.planning.hours import Size, cohort_size, estimate, read_times, report
from workflow.planning.loading import load

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
    assert sum(found["main"]) == pytest.approx(2 * (seconds * share + 2 * 3.0))
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
