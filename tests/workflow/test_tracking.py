"""Changed scans and tables are read again; a cohort that comes out equal retrains nothing."""

import json
import os
import re
import shutil
import time

import pytest
import yaml

from tests.tiny import CONFIG, DATASET, EXPERIMENT
from tests.workflow.conftest import Project, make_project
from workflow.planning.sources import raw_version

OLD = (10**9, 10**9)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A copy of the repository with a cohort of a lab's own, of which everything is made."""
    project = make_project(tmp_path_factory.mktemp("mine") / "brio")
    data = project.folder / "data" / "tiny"
    (data / "series").mkdir(parents=True)
    (data / "participants.tsv").write_text("participant_id\nA\n")
    (data / "series" / "A.tsv").write_text("1\n")
    for kind, content in (("datasets", DATASET), ("experiments", EXPERIMENT)):
        (project.folder / "config" / kind / "tiny.yaml").write_text(yaml.safe_dump(content))
    config = {**CONFIG, "methods": ["gcn"]}
    (project.folder / "config" / "config.yaml").write_text(yaml.safe_dump(config))
    assert "train" in jobs(project.snakemake("--cores", "2"))
    return project


@pytest.fixture
def mine(trained, tmp_path):
    """A copy of it, with the same times."""
    shutil.copytree(trained.folder, tmp_path / "brio", symlinks=True)
    return Project(tmp_path / "brio")


def jobs(done) -> list[str]:
    """The rules that were run."""
    assert done.returncode == 0, done.stdout
    return re.findall(r"^ *\d+ of \d+  (\w+)", done.stdout, flags=re.M)


def test_what_changed_is_read_again_and_what_came_out_equal_retrains_nothing(mine):
    data, results = mine.folder / "data" / "tiny", mine.folder / "results"
    scan, table = data / "series" / "A.tsv", data / "participants.tsv"
    table.touch()
    assert "Nothing to be done" in mine.snakemake("--cores", "2").stdout, "its content is the same"
    scan.touch()
    assert {"extract", "train"} <= {job[0] for job in mine.plan()}, "a plan expects the worst"
    assert "1 stay if their scans turn out to be the same" in mine.snakemake("-n").stdout
    done = jobs(mine.snakemake("--cores", "2"))
    assert {"candidates", "extract", "assemble"} <= set(done)
    assert not {"connect", "split", "blocklength", "train"} & set(done)
    # Mended, but with an old time, while the results' times lie ahead.
    scan.write_text("2\n")
    os.utime(scan, OLD)
    for path in results.rglob("*"):
        os.utime(path, (time.time() + 7200,) * 2)
    done = jobs(mine.snakemake("--cores", "2", COHORT="2"))
    assert {"extract", "connect", "split", "blocklength", "train", "index"} <= set(done)
    assert "Nothing to be done" in mine.snakemake("--cores", "2").stdout
    # Whoever deletes the cohorts wants them to be read again.
    for path in (results / "cohorts" / "tiny").glob("*.*"):
        path.unlink()
    done = jobs(mine.snakemake("--cores", "2", COHORT="2"))
    assert {"extract", "connect"} <= set(done) and "train" not in done
    assert "Nothing to be done" in mine.snakemake("--cores", "2").stdout


def test_a_changed_table_is_read_again_whatever_its_time(mine):
    table = mine.folder / "data" / "tiny" / "participants.tsv"
    table.write_text("participant_id\nB\n")
    os.utime(table, OLD)
    assert {"candidates", "extract", "train"} <= {job[0] for job in mine.plan()}


def test_results_without_records_are_compared_with_what_they_say(mine):
    shutil.rmtree(mine.folder / ".snakemake")
    rules = {job[0] for job in mine.plan()}
    assert rules == {"summarise", "table", "figure", "methods_text", "index", "all"}, (
        "what is made quickly"
    )
    mine.edit("config/config.yaml", "epochs: 5", "epochs: 6")
    done = mine.snakemake("-n")
    assert "rule train:" in done.stdout
    run = "results/runs/tiny/loso/gcn/seed-0"
    assert f"warning: {run}/meta.json states another 'epochs'; what" in done.stdout
    mine.edit("config/config.yaml", "epochs: 6", "epochs: 5")
    meta = mine.folder / run / "meta.json"
    meta.write_text(json.dumps(json.loads(meta.read_text()) | {"code": "another"}))
    done = mine.snakemake("-n")
    assert "rule train:" not in done.stdout, "the same code differs between versions of Python"
    assert f"warning: {run} was trained by another version of the code" in done.stdout
    done = mine.snakemake("--cores", "2")
    assert "Nothing to be done" not in done.stdout
    assert {job[0] for job in mine.plan()} == set(), "now there are records"


def make_scans(folder, number=3):
    (folder / "tiny" / "series").mkdir(parents=True)
    (folder / "tiny" / "participants.tsv").write_text("participant_id\n")
    for index in range(number):
        (folder / "tiny" / "series" / f"s{index}.tsv").write_text("1\n")


def test_the_version_of_raw_data(tmp_path):
    dataset = {"source": {**DATASET["source"], "participants": "participants.tsv"}}
    make_scans(tmp_path)
    scan, table = tmp_path / "tiny/series/s1.tsv", tmp_path / "tiny/participants.tsv"

    def changed():
        nonlocal version
        version, before = raw_version(dataset, str(tmp_path)), version
        return version != before

    version = raw_version(dataset, str(tmp_path))
    os.utime(table, OLD)
    (tmp_path / "tiny/.hidden").write_text("of another program")
    assert not changed()
    os.utime(scan, OLD)
    assert changed()
    scan.write_text("12\n")
    os.utime(scan, OLD)
    assert changed(), "another size with the same time"
    (tmp_path / "tiny/series/s9.tsv").write_text("1\n")
    assert changed()
    table.write_text("participant_id\ns1\n")
    os.utime(table, OLD)
    assert changed()
    (tmp_path / "tiny/series/broken").symlink_to("nowhere")
    (tmp_path / "tiny/series/loop").symlink_to("..")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "tiny/linked").symlink_to(elsewhere)
    changed()
    (elsewhere / "s5.tsv").write_text("1\n")
    assert changed(), "folders of scans are often links"


def test_files_of_another_atlas_and_of_no_series_do_not_count(tmp_path):
    make_scans(tmp_path)
    for source, other in (
        ({"kind": "pcp", "folder": "tiny", "derivative": "rois_cc200"}, "A_rois_aal.1D"),
        ({"kind": "bids", "folder": "tiny", "participants": "participants.tsv"}, "anat/T1w.nii"),
    ):
        version = raw_version({"source": source}, str(tmp_path))
        path = tmp_path / "tiny" / other
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
        assert raw_version({"source": source}, str(tmp_path)) == version


def test_many_scans_are_looked_at_quickly(tmp_path):
    make_scans(tmp_path, 5000)
    dataset = {"source": {**DATASET["source"], "participants": "participants.tsv"}}
    begun = time.process_time()
    raw_version(dataset, str(tmp_path))
    assert time.process_time() - begun < 1
