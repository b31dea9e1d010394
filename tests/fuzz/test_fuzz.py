"""Thousands of made-up inputs: each is read as what it is, or refused in one sentence."""

import copy
import functools
import json
import shutil

import h5py
import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from making import cases, changed, damaged
from tiny import CONFIG, DATASET, EXPERIMENT, ROOT, make_lab

from brio_core.cohorts.candidates import COLUMNS, find_candidates, read_candidates
from brio_core.cohorts.cohort import read_participants
from brio_core.cohorts.extraction import ExtractedScans, write_batch
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.readers.series import series_scan
from brio_core.cohorts.scan import Scan, Unusable
from brio_core.cohorts.splits import make_split, read_split
from brio_core.cohorts.stores import Rois, read_fc, read_series, write_fc, write_series
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json
from workflow.planning import loading
from workflow.planning.configuration import Configuration
from workflow.planning.files import ConfigurationError, read_yaml
from workflow.planning.runs import resolved
from workflow.planning.schema import check, schema

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("fuzz") / "lab")


@pytest.fixture
def in_lab(lab, monkeypatch):
    monkeypatch.chdir(lab.folder)
    # Only the main configuration is made up here; the files that it names are read once.
    monkeypatch.setattr(loading, "_read", functools.cache(loading._read))
    return lab


@cases(400)
@given(config=changed(CONFIG))
def test_configurations(in_lab, config):
    try:
        found = loading.load(config)
    except ConfigurationError as error:
        assert str(error) and "\n" not in str(error)
        return
    assert isinstance(found, Configuration)
    assert yaml.safe_load(yaml.safe_dump(resolved(found)))["config"]["cohorts"]


@pytest.mark.parametrize("kind", ["dataset", "method", "experiment"])
@cases(150)
@given(data=st.data())
def test_files_of_the_configuration(kind, data):
    method = yaml.safe_load((ROOT / "config/methods/gcn.yaml").read_text())
    original = {"dataset": DATASET, "method": method, "experiment": EXPERIMENT}[kind]
    try:
        check(data.draw(changed(original)), schema(kind), "x.yaml")
    except ConfigurationError as error:
        assert str(error).startswith("x.yaml: ")


@cases(250)
@given(content=damaged((ROOT / "config/config.yaml").read_bytes()))
def test_yaml(in_lab, content):
    path = in_lab.folder / "config" / "fuzzed.yaml"
    path.write_bytes(content)
    try:
        assert isinstance(read_yaml(path), dict)
    except ConfigurationError as error:
        assert "fuzzed.yaml" in str(error)


# --- tables and series --------------------------------------------------------------------------


@cases(350)
@given(data=st.data())
def test_participants(lab, data):
    path = lab.folder / "data" / "tiny" / "fuzzed.tsv"
    original = (lab.folder / "data" / "tiny" / "participants.tsv").read_bytes()
    path.write_bytes(data.draw(damaged(original)))
    dataset = copy.deepcopy(DATASET)
    dataset["source"]["participants"] = path.name
    try:
        found = find_candidates(open_reader(dataset, lab.folder / "data"))
    except BrioError as error:
        assert str(error)
        return
    assert found and len({row["subject"] for row in found}) == len(found)
    for row in found:
        assert tuple(row) == COLUMNS or set(row) == set(COLUMNS)
        assert row["label"] in ("0", "1") or row["excluded"]
        assert "\t" not in "".join(map(str, row.values()))
        assert row["source"] == "n/a" or not row["source"].startswith(("/", ".."))
        assert not row["subject"].startswith(("=", "@"))


@cases(150)
@given(data=st.data())
def test_our_own_tables(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "fuzzed-own.tsv"
    head = "\t".join(COLUMNS) + "\n"
    rows = "".join(f"s{i}\tA\t{i % 2}\t20\tF\t0.1\t2\tn/a\tx/s{i}.tsv\tn/a\n" for i in range(6))
    path.write_bytes(data.draw(damaged((head + rows).encode())))
    for read in (read_candidates, read_participants):
        try:
            found = read(path)
        except BrioError as error:
            assert path.name in str(error)
        else:
            assert len(found) >= 0


SUFFIXES = (".tsv", ".csv", ".txt", ".1D", ".npy", ".npz", ".mat", ".h5")


@pytest.fixture(scope="module")
def series_files(tmp_path_factory):
    """The same numbers in every format."""
    from scipy.io import savemat

    folder = tmp_path_factory.mktemp("series")
    values = np.random.default_rng(0).standard_normal((12, 4))
    for suffix in SUFFIXES[:4]:
        np.savetxt(folder / f"x{suffix}", values, "%.4f", "," if suffix == ".csv" else "\t")
    np.save(folder / "x.npy", values)
    np.savez_compressed(folder / "x.npz", series=values)
    savemat(folder / "x.mat", {"series": values})
    with h5py.File(folder / "x.h5", "w") as store:
        store["series"] = values
    return folder


@pytest.mark.parametrize("suffix", SUFFIXES)
@cases(80)
@given(data=st.data())
def test_series(series_files, suffix, data):
    path = series_files / f"fuzzed{suffix}"
    path.write_bytes(data.draw(damaged((series_files / f"x{suffix}").read_bytes())))
    try:
        scan = series_scan(path)
    except Unusable as unusable:
        assert path.name in str(unusable)
        return
    assert scan.series.ndim == 2 and scan.series.dtype == np.float32
    assert scan.frames_before >= len(scan.series)


# --- our own binary files and JSON --------------------------------------------------------------


@pytest.fixture(scope="module")
def our_files(tmp_path_factory):
    """One small file of every kind that later stages read."""
    import pandas as pd

    folder = tmp_path_factory.mktemp("ours")
    generator = np.random.default_rng(0)
    subjects = [f"s{number}" for number in range(40)]
    scans = [generator.standard_normal((9, 4)).astype(np.float32) for _ in subjects]
    write_series(folder / "series.h5", subjects, scans, Rois.named("ABCD"), {"made": "up"})
    write_fc(folder / "fc.h5", subjects, (np.eye(4, dtype=np.float32) for _ in subjects))
    results = [(name, Scan(scan, 9, tuple("ABCD"))) for name, scan in zip(subjects, scans)]
    write_batch(folder / "part.h5", results[:5])
    columns = {"subject": subjects, "site": [f"site{i % 5}" for i in range(40)],
               "label": [i // 5 % 2 for i in range(40)], "group": ["n/a"] * 40}  # fmt: skip
    split = make_split(pd.DataFrame(columns), "tiny", "loso", 0)
    (folder / "split.json").write_text(json.dumps(split, indent=1))
    return folder


def read_part(path):
    parts, subjects = ExtractedScans([path]), [f"s{i}" for i in range(5)]
    return list(map(parts.outcome, subjects)), list(map(parts.series, subjects))


def is_series(found) -> bool:
    return len(found) + 1 == len(found.offsets) and found.bold.shape[1] == len(found.rois)


@pytest.mark.parametrize(
    "name, read, is_right",
    [
        ("series.h5", read_series, is_series),
        ("fc.h5", read_fc, lambda found: len(found[0]) == len(found[1])),
        ("part.h5", read_part, lambda found: len(found[0]) == len(found[1]) == 5),
        ("split.json", read_split, lambda found: len(found["subjects"]) == 40),
        ("split.json", read_json, lambda found: True),
    ],
)
@cases(100)
@given(data=st.data())
def test_our_own_files(our_files, name, read, is_right, data):
    path = our_files / f"fuzzed-{name}"
    path.write_bytes(data.draw(damaged((our_files / name).read_bytes())))
    try:
        found = read(path)
    except BrioError as error:
        assert path.name in str(error)
    else:
        assert is_right(found)
    finally:
        shutil.rmtree(path, ignore_errors=True)
