"""Scans of a new site: which row of a table is theirs, and which files are scans."""

import os
import signal
import sys
import time

import numpy as np
import pytest

from brio_core.cohorts import new_scans
from brio_core.cohorts.new_scans import read_new_scans, read_people
from brio_core.cohorts.scan import Scan, Unusable
from brio_core.system.errors import BrioError


@pytest.fixture
def people(tmp_path):
    """The labels that scans get from a table with some ids, the first of them of class 1."""

    def read(ids, subjects):
        rows = [f"{one}\t{int(place == 0)}" for place, one in enumerate(ids)]
        path = tmp_path / "people.tsv"
        path.write_text("\n".join(["participant_id\tlabel", *rows]) + "\n")
        return read_people(path, subjects, {}).label.tolist()

    return read


@pytest.mark.parametrize("ids, subjects, labels", [
    (["10", "1"], ["10_run-1", "1_run-1"], [1, 0]),
    (["10", "1"], ["10_run-1", "2_run-1"], [1, np.nan]),
    (["1", "002"], ["sub-002_run-1", "sub-003_run-1"], [0, np.nan]),
    (["sub-002", "1"], ["lab_ses-1_sub-002_run-1", "1"], [1, 0]),
    (["0051456", "0051457"], ["Caltech_0051457_rois", "Caltech_0051456_rois"], [0, 1]),
    (["s_1_2", "s_1"], ["s_1_rois", "s_1_2_rois"], [0, 1]),
    (["002_ses-1", "002_ses-2"], ["sub-002_ses-1_bold", "sub-002_ses-2_bold"], [1, 0]),
])  # fmt: skip
def test_an_id_is_that_of_sub_or_begins_the_name(people, ids, subjects, labels):
    np.testing.assert_equal(people(ids, subjects), [float(label) for label in labels])


def test_a_number_of_a_run_is_no_id(people):
    with pytest.raises(BrioError, match="has no row for any scan, such as 'sub-001_run-1'"):
        people(["1", "2"], ["sub-001_run-1", "sub-002_run-1"])


def test_a_row_serves_one_scan(people):
    with pytest.raises(BrioError, match="the row '7' would serve the scans 7_run-1 and 7_run-2;"):
        people(["7", "8"], ["7_run-1", "7_run-2", "8_run-1"])


def test_labels_need_a_column(tmp_path):
    (tmp_path / "people.tsv").write_text("participant_id\tage\n1\t30\n")
    with pytest.raises(BrioError, match="has no column 'label' or 'diagnosis'; name the column"):
        read_people(tmp_path / "people.tsv", ["1"], {})


def test_which_files_are_scans_of_whom(tmp_path):
    for name in ("ro.01.tsv", "ro.02.TSV", "._ro.01.tsv", "participants.tsv", "notes.doc"):
        np.savetxt(tmp_path / name, np.random.default_rng(0).normal(size=(9, 4)), delimiter="\t")
    found = read_new_scans(tmp_path, {})
    assert [one.subject for one in found] == ["ro.01", "ro.02"]
    assert all(isinstance(one.scan, Scan) for one in found)


@pytest.mark.parametrize("name", ["sub-001.tsv", "sub-001.h5"])
def test_one_file_is_no_folder(tmp_path, name):
    (tmp_path / name).write_text("1\t2\n")
    with pytest.raises(BrioError, match="is one file; name its folder") as error:
        read_new_scans(tmp_path / name, {})
    assert "delete" not in str(error.value)


@pytest.fixture
def many(tmp_path, monkeypatch):
    """A folder with enough files for two processes; one of them is no series."""
    monkeypatch.setattr(new_scans.os, "cpu_count", lambda: 2)
    files = [tmp_path / f"{number:02}.csv" for number in range(2 * new_scans.FILES_EACH)]
    for number, file in enumerate(files):
        values = np.random.default_rng(number).normal(size=(9, 4))
        np.savetxt(file, values, delimiter=",")
    files[7].write_text("a,b\nc,d\n")
    return tmp_path


def test_processes_read_what_one_reads(many, monkeypatch):
    busy = []
    found = read_new_scans(many, {}, meanwhile=lambda: busy.append(True))
    assert busy == [True] * (sys.platform == "linux")
    monkeypatch.setattr(new_scans.os, "cpu_count", lambda: 1)
    alone = read_new_scans(many, {})
    assert [one.subject for one in found if isinstance(one.scan, Unusable)] == ["07"]
    for one, other in zip(found, alone, strict=True):
        assert one.subject == other.subject
        if isinstance(one.scan, Unusable):
            assert str(one.scan) == str(other.scan)
        else:
            np.testing.assert_array_equal(one.scan.series, other.scan.series)


@pytest.mark.skipif(sys.platform != "linux", reason="one process reads")
def test_a_reader_that_the_system_ends_is_no_reason_to_wait(many, monkeypatch):
    def ends(path):
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(new_scans, "series_scan", ends)
    with pytest.raises(BrioError, match="the system ended a process"):
        read_new_scans(many, {})


@pytest.mark.skipif(sys.platform != "linux", reason="one process reads")
def test_whoever_stops_does_not_wait_for_all_files(many, monkeypatch):
    def slowly(path):
        time.sleep(0.1)
        path.with_suffix(".read").touch()

    def stop():
        raise KeyboardInterrupt

    monkeypatch.setattr(new_scans, "series_scan", slowly)
    with pytest.raises(KeyboardInterrupt):
        read_new_scans(many, {}, meanwhile=stop)
    # Those that processes have begun, or have been handed, are read; the others are not.
    assert len(list(many.glob("*.read"))) < 2 * new_scans.FILES_EACH
