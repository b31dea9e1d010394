"""The pages on the data: statistics beside the paper's, and sites before any training."""

import csv
import json

import numpy as np
import pytest

from brio_core.cohorts.cohort import PARTICIPANT_COLUMNS
from brio_core.cohorts.stores import Rois, write_fc, write_series
from tests.programs import run_program
from tests.reporting.standins import (
    DATASET,
    make_table,
    write_block_lengths,
    write_cohort,
    write_profile,
)

WORDS = {"title": "Title", "caption": "Caption."}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("data")
    for name in ("demo", "abide-aal116"):
        write_cohort(root, name)
        write_profile(root, name)
    write_block_lengths(root, "loso")
    return root


def _rows(path):
    with open(path, newline="") as stream:
        return list(csv.DictReader(stream))


def test_statistics_stand_beside_those_of_the_paper(root, tmp_path):
    folders = [root / "cohorts" / name for name in ("demo", "abide-aal116")]
    datasets = {"demo": DATASET | {"rois": {"expected": 24}}, "abide-aal116": {"title": "ABIDE"}}
    files = {
        name: [folder / f"{name}.tsv" for folder in folders]
        for name in ("inclusion", "participants", "regions")
    }
    lengths = [root / "blocklength/demo/loso.json"]
    make_table(
        "datasets", tmp_path / "datasets", WORDS, None, datasets, block_lengths=lengths, **files
    )
    demo, ours, paper = _rows(tmp_path / "datasets.csv")
    assert [float(demo[key]) for key in ("samples", "sites", "rois")] == [98, 7, 23]
    lengths = json.loads((root / "blocklength/demo/loso.json").read_text())["folds"]
    expected = np.median([fold["block_length"] for fold in lengths])
    assert float(demo["block_length_frames"]) == expected
    assert (ours["source"], paper["source"]) == ("ours", "paper")
    assert float(ours["samples"]) == 98 and ours["block_length_frames"] == ""
    numbers = {key: float(paper[key]) for key in paper if paper[key] and key[0] in "spctb"
               and key not in ("cohort", "source")}  # fmt: skip
    assert numbers == {
        "samples": 1025, "patients": 488, "controls": 537, "sites": 20, "time_points_mean": 194.51,
        "time_points_sd": 58.58, "block_length_frames": 6, "block_length_seconds": 12,
    }  # fmt: skip
    text = (tmp_path / "datasets.md").read_text()
    assert "| in the paper |" in text and "194.51 ± 58.58" in text
    assert json.loads((tmp_path / "datasets.json").read_text())["section"] == "cohort"


def test_dead_regions_by_site_and_class(root, tmp_path):
    make_table(
        "regions", tmp_path / "regions", WORDS, datasets={"demo": DATASET},
        regions=[root / "cohorts" / "demo" / "regions.tsv"],
    )  # fmt: skip
    assert len(_rows(tmp_path / "regions.csv")) == 7 * 2 * 25
    table = json.loads((tmp_path / "regions.json").read_text())
    ((site, patients, controls, regions),) = (
        [cell["text"] for cell in row["cells"]] for row in table["rows"]
    )
    assert (site, patients, controls, regions) == ("Alder", "7 of 7", "0 of 7", "r00 (7)")
    words = "regions are dead in 7 of 98 subjects; 23 of 24 regions are used, left out: r00."
    assert words in table["caption"]


def test_a_cohort_without_dead_regions(tmp_path):
    folder = write_cohort(tmp_path)
    text = (folder / "regions.tsv").read_text()
    (folder / "regions.tsv").write_text(text.replace("\t7\n", "\t0\n"))
    make_table("regions", tmp_path / "regions", WORDS, regions=[folder / "regions.tsv"])
    assert "regions are dead in 0 of 98 subjects" in (tmp_path / "regions.md").read_text()
    assert json.loads((tmp_path / "regions.json").read_text())["rows"] == []


def test_sites_by_class(root, tmp_path):
    profiles = [root / f"cohorts/{name}/site_profile.tsv" for name in ("demo", "abide-aal116")]
    prefix = tmp_path / "sites"
    make_table("sites", prefix, WORDS, datasets={"demo": DATASET}, profiles=profiles)
    rows = _rows(tmp_path / "sites.csv")
    assert len(rows) == 2 * (7 + 1) * 2
    total = [row for row in rows if row["cohort"] == "demo" and row["site"] == "all"]
    assert sum(int(row["subjects"]) for row in total) == 98
    assert sum(int(row["outliers"]) for row in total) == 1
    subject = _tsv(profiles[0])
    alder = [p for p in subject if p["site"] == "Alder" and p["label"] == "1"]
    row = next(r for r in rows if r["site"] == "Alder" and r["label"] == "1")
    assert float(row["age_mean"]) == pytest.approx(np.mean([float(p["age"]) for p in alder]))
    assert float(row["minutes"]) == pytest.approx(
        np.mean([float(p["frames"]) for p in alder]) * 2 / 60
    )
    table = json.loads((tmp_path / "sites.json").read_text())
    assert "chance 14.3 %" in table["caption"] and table["section"] == "cohort"


def _tsv(path):
    header, *lines = (line.split("\t") for line in path.read_text().splitlines())
    return [dict(zip(header, line)) for line in lines]


def test_profile_of_a_cohort(tmp_path):
    draw = np.random.default_rng(0)
    subjects, people, scans, matrices = [], ["\t".join(PARTICIPANT_COLUMNS)], [], []
    for number in range(40):
        subject, site = f"s{number:02d}", f"site{number % 5}"
        subjects.append(subject)
        age, sex = ("n/a", "n/a") if number == 3 else (30, "F")
        cells = (subject, site, number // 5 % 2, age, sex, 0.1, 2.0, "n/a", "x")
        people.append("\t".join(map(str, cells)))
        scans.append(draw.normal(size=(70, 6)).astype(np.float32))
        matrices.append(np.arctanh(np.corrcoef(scans[-1].T) - np.eye(6)))
    (tmp_path / "participants.tsv").write_text("\n".join(people) + "\n")
    write_series(tmp_path / "series.h5", subjects, scans, Rois.named("abcdef"), {})
    write_fc(tmp_path / "fc.h5", subjects, matrices)
    out = tmp_path / "profile.tsv"
    result = run_program("site_profile", "--cohort-dir", tmp_path, "--out", out)
    assert result.returncode == 0, result.stderr
    assert "40 subjects" in result.stdout
    rows = _tsv(out)
    assert (rows[3]["age"], rows[3]["male"], rows[4]["male"]) == ("n/a", "n/a", "0")
    assert rows[0]["frames"] == "70" and rows[0]["recognised_as"].startswith("site")
    result = run_program("site_profile", "--cohort-dir", tmp_path / "none", "--out", out)
    assert result.returncode == 1 and result.stderr.startswith("error: ")
