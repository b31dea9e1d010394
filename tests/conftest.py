"""What all tests share: the programs, and the demo cohort made once per test session."""

import json
from pathlib import Path

import pytest
import torch
import yaml

from tests.programs import run_program

ROOT = Path(__file__).resolve().parents[1]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With ``-m gpu`` import only what has such tests: machines with a GPU may lack the rest."""
    if config.option.markexpr != "gpu":
        return None
    files = collection_path.glob("**/*.py") if collection_path.is_dir() else [collection_path]
    return None if any("@pytest.mark.gpu" in file.read_text("utf-8") for file in files) else True


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


def _load_dataset(cohort: str) -> dict:
    return yaml.safe_load((ROOT / "config" / "datasets" / f"{cohort}.yaml").read_text())


def _run_cohort(dataset: dict, data_dir: Path, out: Path, on_bad_subject: str = "exclude"):
    settings = ("--dataset", json.dumps(dataset), "--data-dir", data_dir)
    bad = ("--on-bad-subject", on_bad_subject)
    candidates, part = out / "candidates.tsv", out / "parts" / "0.h5"
    result = run_program("candidates", *settings, *bad, "--out", candidates)
    if result.returncode == 0:
        batch = ("--batch", 0, "--batches", 1)
        result = run_program(
            "extract", *settings, "--candidates", candidates, *batch, "--out", part
        )
    if result.returncode == 0:
        result = run_program(
            "assemble", *settings, *bad, "--candidates", candidates, "--parts", part,
            "--participants", out / "participants.tsv", "--inclusion", out / "inclusion.tsv",
            "--regions", out / "regions.tsv", "--series", out / "series.h5",
        )  # fmt: skip
    return result


@pytest.fixture(scope="session")
def run_script():
    """``run_script("split", "--out", path, ...)`` runs scripts/split.py as a user would."""
    return run_program


@pytest.fixture(scope="session")
def load_dataset():
    """``load_dataset("demo")`` is the mapping of config/datasets/demo.yaml."""
    return _load_dataset


@pytest.fixture(scope="session")
def run_cohort():
    """``run_cohort(dataset, data_dir, out)`` runs candidates, extract and assemble.

    It returns the result of the last program that ran; later ones are skipped after an error.
    """
    return _run_cohort


@pytest.fixture(scope="session")
def demo_data(tmp_path_factory) -> Path:
    """A data folder (``data_dir``) that holds the demo cohort in ``demo/``."""
    data_dir = tmp_path_factory.mktemp("data")
    result = run_program("make_demo", "--out", data_dir / "demo")
    assert result.returncode == 0, result.stderr
    return data_dir


@pytest.fixture(scope="session")
def demo_results(demo_data, tmp_path_factory) -> Path:
    """A folder with candidates, participants, inclusion (.tsv) and series.h5 of the demo cohort."""
    out = tmp_path_factory.mktemp("results") / "cohorts" / "demo"
    result = _run_cohort(_load_dataset("demo"), demo_data, out)
    assert result.returncode == 0, result.stderr
    (out / "assemble.log").write_text(result.stderr)
    return out


@pytest.fixture(scope="session")
def trained_demo_cell(demo_results, tmp_path_factory) -> tuple[Path, list]:
    """The run folder of a linear model on the demo cohort, and the options that name its files."""
    out = tmp_path_factory.mktemp("cell")
    split, length, fc = out / "split.json", out / "length.json", demo_results / "fc.h5"
    common = ("--participants", demo_results / "participants.tsv")
    series = ("--series", demo_results / "series.h5")
    files = ["--cohort-dir", demo_results, "--split", split, "--block-length", length]
    presets = yaml.safe_load((ROOT / "config/methods/linear-correlation.yaml").read_text())[
        "presets"
    ]
    params = {
        "method": "linear-correlation",
        "label": "Linear",
        "group": "Linear",
        "hyperparameters": presets["common"],
    }
    for command in (
        ("connect", *series, "--out", fc),
        ("split", *common, "--cohort", "demo", "--protocol", "loso", "--split-seed", 0,
         "--out", split),
        ("blocklength", *series, *common, "--split", split, "--settings", "{}", "--out", length),
        ("train", *files, "--variant", "linear-correlation", "--params", json.dumps(params),
         "--seed", 0, "--device", "cpu", "--out-dir", out / "run"),
    ):  # fmt: skip
        result = run_program(*command)
        assert result.returncode == 0, (command[0], result.stderr)
    return out / "run", files


@pytest.fixture(scope="session")
def method_params():
    """``method_params("gcn", epochs=4)``: what the trainer is told about a method."""
    return _method_params


def _method_params(method: str, **changes) -> dict:
    text = (ROOT / f"config/methods/{method}.yaml").read_text()
    values = yaml.safe_load(text)["presets"]["common"] | changes
    return {"method": method, "label": "Its label", "group": "Linear", "hyperparameters": values}


@pytest.fixture(scope="session")
def bundles(trained_demo_cell, tmp_path_factory) -> tuple:
    """A folder with ``run``, which leaves sites of the demo out, and two bundles made of it.

    These are ``all.brio`` and ``without.brio``, which lacks the site that comes with the folder,
    after that of the cohort and before its participants.
    """
    import pandas as pd

    folder, files = tmp_path_factory.mktemp("bundles"), trained_demo_cell[1]
    table = pd.read_csv(files[1] / "participants.tsv", sep="\t", dtype=str)
    site = sorted(set(table["site"]))[1]
    params = json.dumps(_method_params("linear-logarithm"))
    words = ("--params", params, "--device", "cpu")
    result = run_program(
        "train", *files, *words, "--variant", "linear-logarithm", "--seed", 0,
        "--out-dir", folder / "run",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    for name, more in (("all", ()), ("without", ("--without", site))):
        result = run_program(
            "model", "--cohort-dir", files[1], "--runs", folder / "run", *words, "--settings", "{}",
            "--words", json.dumps({"task": "patient vs. control"}), "--card", folder / name,
            "--out", folder / f"{name}.brio", *more,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
    return folder, files[1], site, table
