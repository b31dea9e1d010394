"""``brio check`` reads a cohort like the workflow, tells every problem and writes nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from brio_core.cohorts import inclusion
from brio_core.cohorts.check import check_cohort
from brio_core.cohorts.cohort import covariates_of
from brio_core.cohorts.tables import covariate
from workflow.planning.schema import filled, schema

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

# What `brio new-cohort` writes.
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
        result = run_script("brio", "check", mine / dataset, "--data-dir", mine / "data")
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
        "  s52: duplicate scan: series correlate 1.00 at lag 0 with s40 (label 0, mean FD n/a); "
        "own label 0, mean FD n/a",
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


def test_folds_of_one_class_are_noted(mine, monkeypatch):
    """Four sites with two patients each, which are too few for ten folds."""
    table = mine / "data" / "mine" / "participants.tsv"
    head, *rows = table.read_text().splitlines()
    rows = [row for row in rows if row[1] < "4" and ("control" in row or row[2] < "4")]
    table.write_text("\n".join([head, *rows]) + "\n")
    dataset = yaml.safe_load(FIVE_LINES) | {"inclusion": {"min_subjects_per_class": 2}}
    monkeypatch.setattr(inclusion, "MIN_SITES", 4)
    report = check_cohort(filled(dataset, schema("dataset")), mine / "data")
    assert len(report.errors) == 1 and "protocol loso" in report.errors[0]
    assert "2 of 10 folds of protocol id test one class only" in report.text()


def test_long_lists_go_to_a_file_and_errors_stand_last(mine, run_script):
    folder = mine / "data" / "mine"
    rows = ["participant_id\tsite\tdiagnosis"]
    # Beside them lie 60 scans without a row.
    for number in range(300):
        rows.append(f"n{number}\tsite{number % 3}\t{('control', 'patient')[number // 3 % 2]}")
        if number % 5:
            (folder / "series" / f"n{number}.npy").symlink_to("s00.npy")
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    words = ("brio", "check", mine / "mine.yaml", "--data-dir", mine / "data")
    result = run_script(*words, "--table", mine / "all.tsv")
    lines = result.stdout.splitlines()
    assert result.returncode == 1 and len(lines) < 60
    assert lines[0] == f"all 360 subjects are in {mine / 'all.tsv'}, with the reasons"
    table = pd.read_csv(mine / "all.tsv", sep="\t")
    assert len(table) == 360 and (table["kept"] == "no").sum() > 60
    assert f"  and {(table['kept'] == 'no').sum() - 20} more" in lines
    assert lines[-2] == "errors, which stop a run:" and "no subject" in lines[-1]


@pytest.mark.parametrize("name", ["estimate_hours", "remote"])
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
    (tmp_path / "demo.yaml").write_text(yaml.safe_dump(load_dataset("demo")))
    result = run_script(
        "brio", "check", tmp_path / "demo.yaml", "--data-dir", demo_data,
        "--table", tmp_path / "check.tsv",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "98 of 105 candidate subjects kept" in result.stdout


DATASET = {
    "cohort": "toy",
    "source": {
        "kind": "series",
        "folder": "toy",
        "pattern": "{subject}.npy",
        "participants": "participants.tsv",
    },
    "columns": {
        "subject": "subject", "site": "site", "label": "label", "age": "age", "sex": "sex",
        "mean_fd": "mean_fd", "tr": "tr", "group": "group",
    },
    "label": {"positive": "1", "negative": "0"},
    "rois": {"expected": 4},
    "inclusion": {},
}  # fmt: skip
PLAIN = {"age": "31.5", "sex": "F", "mean_fd": "0.1", "tr": "2", "group": "n/a"}


@pytest.fixture
def checked(tmp_path):
    """``checked(s01={"age": "x"})`` reads five sites of eight, with cells of s01 replaced."""

    def check(**changes):
        folder = tmp_path / "toy"
        folder.mkdir(exist_ok=True)
        draw = np.random.default_rng(0)
        rows = []
        for site in range(5):
            for number in range(8):
                subject = f"s{site}{number}"
                np.save(folder / f"{subject}.npy", draw.normal(size=(60, 4)))
                row = {"subject": subject, "site": f"site{site}", "label": number % 2, **PLAIN}
                rows.append(row | changes.get(subject, {}))
        pd.DataFrame(rows).to_csv(folder / "participants.tsv", sep="\t", index=False)
        return check_cohort(DATASET, tmp_path)

    return check


def test_a_plain_cohort_needs_no_notes(checked):
    report = checked()
    assert report.notes == report.errors == report.exclusions == []


def test_numbers_that_are_none_are_noted(checked):
    report = checked(
        s00={"age": "31,5"}, s01={"age": "25 years"}, s02={"age": "M"}, s03={"age": "n/a"},
        s10={"mean_fd": "high"}, s11={"mean_fd": "1e30"}, s12={"age": "1e30"}, s13={"age": "-1"},
    )  # fmt: skip
    assert report.notes == [
        "age is unknown for 1 of 40 kept subjects",
        "age of 5 of 40 kept subjects is no number from 0 to 100000, e.g. '31,5' of subject s00: "
        "it counts as missing",
        "mean_fd of 2 of 40 kept subjects is no number from 0 to 1000, e.g. 'high' of subject s10: "
        "it counts as missing",
    ]


def test_absurd_covariates_are_missing_in_training():
    found = covariate("age", ["31", "1e30", "-1", "x"])
    np.testing.assert_array_equal(found, [31, np.nan, np.nan, np.nan])


def test_unknown_codes_of_sex_are_noted(checked):
    report = checked(s00={"sex": "w"}, s01={"sex": "1.0"}, s02={"sex": "MALE"}, s03={"sex": "2"})
    assert report.notes == [
        "sex of 2 of 40 kept subjects is neither male (1, m, male) nor female (0, 2, f, female), "
        "e.g. 'w' of subject s00: it counts as missing"
    ]


@pytest.mark.parametrize("column", ["age", "sex", "mean_fd"])
@pytest.mark.parametrize(
    "value",
    ["0", "1", "2", "3", "m", "M", "f", "Male", "FEMALE", "w", "1.0", "1e1", "1_0", "1,5", ".5",
     "0x1A", "True", "inf", "25 years", "none"],
)  # fmt: skip
def test_noted_is_what_training_counts_as_missing(checked, column, value):
    """Should training ever read another spelling, this fails."""
    missing = np.isnan(covariates_of(pd.DataFrame([PLAIN | {column: value}]))).any()
    notes = checked(s00={column: value}).notes
    assert [note.startswith(f"{column} of 1 of 40") for note in notes] == [True] * int(missing)


def test_repetition_times_in_milliseconds_are_noted(checked):
    assert checked(s00={"tr": "20"}).notes == []
    assert checked(s00={"tr": "2000"}, s11={"tr": "1500"}).notes == [
        "the repetition time of site0, site1 is above 20 s, e.g. 2000 of subject s00; is it in "
        "milliseconds?"
    ]


def test_groups_that_span_sites_are_noted(checked):
    report = checked(s00={"group": "a"}, s10={"group": "a"}, s20={"group": "b"})
    assert report.errors == []
    assert report.notes == [
        "2 of 40 kept subjects share their group (columns.group) with another site; they do not "
        "train where that site validates or is tested"
    ]


def test_splits_that_groups_prevent_are_errors(checked):
    """The same four controls were scanned at every site."""
    travelling = {
        f"s{site}{number}": {"group": f"p{number}"} for site in range(5) for number in (0, 2, 4, 6)
    }
    (error, *_) = checked(**travelling).errors
    assert error.startswith("cohort toy cannot be split for protocol loso: site 'site")
