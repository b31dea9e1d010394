"""What all tests share: the demo cohort, made once per test session with the real programs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]


def run_script(name: str, *arguments: object) -> subprocess.CompletedProcess:
    """Run ``scripts/<name>.py`` as a user would and return its exit code and output."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "scripts" / f"{name}.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def load_dataset(cohort: str) -> dict:
    """The mapping of ``config/datasets/<cohort>.yaml``."""
    return yaml.safe_load((ROOT / "config" / "datasets" / f"{cohort}.yaml").read_text())


def run_cohort(dataset: dict, data_dir: Path, out: Path, on_bad_subject: str = "exclude"):
    """Candidates, extract (one batch) and assemble; the result of the last program that ran."""
    settings = ("--dataset", json.dumps(dataset), "--data-dir", data_dir)
    bad = ("--on-bad-subject", on_bad_subject)
    candidates, part = out / "candidates.tsv", out / "parts" / "0.h5"
    result = run_script("candidates", *settings, *bad, "--out", candidates)
    if result.returncode == 0:
        batch = ("--batch", 0, "--batches", 1)
        result = run_script("extract", *settings, "--candidates", candidates, *batch, "--out", part)
    if result.returncode == 0:
        outputs = (
            "--participants",
            out / "participants.tsv",
            "--inclusion",
            out / "inclusion.tsv",
            "--series",
            out / "series.h5",
        )
        inputs = ("--candidates", candidates, "--parts", part)
        result = run_script("assemble", *settings, *inputs, *bad, *outputs)
    return result


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory) -> Path:
    """A data folder (``data_dir``) that holds the demo cohort in ``demo/``."""
    data_dir = tmp_path_factory.mktemp("data")
    result = run_script("make_demo", "--out", data_dir / "demo")
    assert result.returncode == 0, result.stderr
    return data_dir


@pytest.fixture(scope="session")
def demo_results(demo_data, tmp_path_factory) -> Path:
    """A folder with candidates, participants, inclusion (.tsv) and series.h5 of the demo cohort."""
    out = tmp_path_factory.mktemp("results") / "cohorts" / "demo"
    result = run_cohort(load_dataset("demo"), demo_data, out)
    assert result.returncode == 0, result.stderr
    return out
