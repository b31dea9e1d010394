"""check_cohort reads a cohort like the workflow, tells every problem, and writes nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

# The five lines of config/README.md.
FIVE_LINES = """\
cohort: mine
source: {kind: series, folder: mine, pattern: "series/{subject}.npy"}
columns: {subject: participant_id, site: site, label: diagnosis}
label: {positive: patient, negative: control}
rois: {expected: 6}
"""


@pytest.fixture
def mine(tmp_path):
    """Six sites with ten subjects; returns the data folder and the dataset file."""
    folder = tmp_path / "data" / "mine"
    (folder / "series").mkdir(parents=True)
    draw = np.random.default_rng(0)
    rows = ["participant_id\tsite\tdiagnosis"]
    for site in range(6):
        for number in range(10):
            rows.append(f"s{site}{number}\tsite{site}\t{('control', 'patient')[number % 2]}")
            np.save(folder / "series" / f"s{site}{number}.npy", draw.normal(size=(70, 6)))
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "mine.yaml").write_text(FIVE_LINES)
    return tmp_path


@pytest.fixture
def check(mine, run_script):
    def run(dataset="mine.yaml"):
        before = sorted(mine.rglob("*"))
        result = run_script("check_cohort", mine / dataset, "--data-dir", mine / "data")
        assert sorted(mine.rglob("*")) == before
        return result

    return run


def test_clean_cohort(check):
    result = check()
    assert result.returncode == 0, result.stderr
    assert "cohort mine: 60 of 60 candidate subjects kept" in result.stdout
    assert result.stdout.count(" yes ") == 60
    assert "repetition time of site0, site1" in result.stdout
    assert result.stdout.endswith("no problems\n")


def test_every_problem_is_told(check, mine):
    series = mine / "data" / "mine" / "series"
    (series / "s00.npy").unlink()
    (series / "s11.npy").write_bytes(b"")
    np.save(series / "s20.npy", np.zeros((70, 6)))
    np.save(series / "s30.npy", np.zeros((70, 5)))
    shutil.copy(series / "s40.npy", series / "s52.npy")
    (mine / "other.yaml").write_text(FIVE_LINES)
    result = check("other.yaml")
    assert result.returncode == 0, result.stderr
    for line in (
        "  s00: missing file: mine/series/s00.npy",
        "  s11: empty file: mine/series/s11.npy",
        "  s20: too many constant ROIs: 6 of 6, at most 3",
        "  s30: wrong number of ROIs: 5 instead of 6",
        "  s52: duplicate scan: same series as s40",
        "  to run it, save the file as config/datasets/mine.yaml, like its cohort",
    ):
        assert line in result.stdout.splitlines()


def test_what_would_stop_a_run_is_an_error(check, mine):
    dataset = mine / "mine.yaml"
    for change, words in (
        (("rois: {expected: 6}", "rois: {expected: 7}"), "no subject of cohort mine is left"),
        (("label: diagnosis", "label: dx"), "participants.tsv has no column 'dx' (the label)"),
        (("site: site, label: diagnosis", "site: a, label: b"), "'a' (the site) and no column 'b'"),
        (("folder: mine", "folder: ours"), "the data of cohort mine are missing"),
    ):
        dataset.write_text(FIVE_LINES.replace(*change))
        result = check()
        assert result.returncode == 1
        assert "errors, which stop a run:" in result.stdout and words in result.stdout


def test_groups_that_leave_a_fold_without_a_class_are_an_error(check, mine):
    """The controls of the first site travelled to all others; without groups all is well."""
    table = mine / "data" / "mine" / "participants.tsv"
    head, *rows = table.read_text().splitlines()
    people = [f"p{row[2]}" if "control" in row else "n/a" for row in rows]
    rows = [f"{row}\t{person}" for row, person in zip(rows, people)]
    table.write_text("\n".join([f"{head}\tperson", *rows]) + "\n")
    assert check().stdout.endswith("no problems\n")
    dataset = FIVE_LINES.replace("label: diagnosis", "label: diagnosis, group: person")
    (mine / "mine.yaml").write_text(dataset)
    result = check()
    assert result.returncode == 1
    assert "cohort mine cannot be split for protocol loso: site 'site" in result.stdout
    assert "30 of 60 kept subjects share their group (columns.group)" in result.stdout
    assert "no problems" not in result.stdout


@pytest.mark.parametrize("name", ["check_cohort", "fetch_cohort", "estimate_hours", "remote"])
def test_programs_that_users_call_need_no_installed_package(name, tmp_path):
    """Whatever brio_core the environment has, or none: that of the repository is used."""
    (tmp_path / "brio_core.py").write_text("raise ImportError('not the one of the repository')\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, str(SCRIPTS / f"{name}.py"), "--help"]
    result = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "usage: " in result.stdout


def test_mistakes_in_the_file_are_one_sentence(check, mine):
    for change, words in (
        (("cohort:", "cohrt:"), "unknown key 'cohrt'; did you mean 'cohort'?"),
        (("kind: series", "kind: serie"), "must be one of bids, pcp, series, dpabi"),
        (("{", "{{"), "is not valid YAML"),
    ):
        (mine / "mine.yaml").write_text(FIVE_LINES.replace(*change))
        result = check()
        assert result.returncode == 1 and result.stderr.startswith("error: ")
        assert words in result.stderr and result.stderr.count("\n") == 1


def test_images_are_read_too(run_script, demo_data, load_dataset, tmp_path):
    import yaml

    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(load_dataset("demo")))
    result = run_script("check_cohort", tmp_path / "demo.yaml", "--data-dir", demo_data)
    assert result.returncode == 0, result.stderr
    assert "98 of 105 candidate subjects kept" in result.stdout
