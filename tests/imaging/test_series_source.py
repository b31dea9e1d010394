"""ROI series from text tables and from arrays in .npy, .mat and .h5 files."""

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from brio_core.errors import BrioError
from brio_core.imaging.base import Unusable, constant_columns
from brio_core.imaging.candidates import find_candidates
from brio_core.imaging.series import read_series_file, series_scan
from brio_core.imaging.sources import open_source

VALUES = np.round(np.random.default_rng(0).normal(size=(70, 6)), 3)
NAMES = tuple("abcdef")


def _write_array(path, values, variable="series"):
    if path.suffix == ".npy":
        np.save(path, values)
    elif path.suffix == ".mat":
        savemat(path, {variable: values, "TR": 2.0, "id": "s1"})
    else:
        with h5py.File(path, "w") as store:
            store[variable], store["TR"] = values, 2.0


def _write(path, header):
    separator = {".1D": "\t", ".txt": " ", ".tsv": "\t", ".csv": ","}.get(path.suffix)
    if separator is None:
        _write_array(path, VALUES)
        return
    lines = [separator.join(header)] if header else []
    lines += [separator.join(f"{value:.3f}" for value in row) for row in VALUES]
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(
    ("name", "header", "names"),
    [
        ("s.npy", None, ()),
        ("s.mat", None, ()),
        ("s.h5", None, ()),
        ("s.1D", [f"#{index}" for index in range(6)], tuple("012345")),
        ("s.1D", ["#", *NAMES], NAMES),
        ("s.1D", ["# made by hand"], ()),
        ("s.1D", None, ()),
        ("s.txt", None, ()),
        ("s.tsv", NAMES, NAMES),
        ("s.tsv", None, ()),
        ("s.csv", NAMES, NAMES),
        ("s.csv", [str(index) for index in range(6)], tuple("012345")),
        ("s.csv", ['"Region, left"', *NAMES[1:]], ("Region, left", *NAMES[1:])),
    ],
)
def test_reads_each_file_type(tmp_path, name, header, names):
    _write(tmp_path / name, header)
    values, found = read_series_file(tmp_path / name)
    np.testing.assert_array_equal(values, VALUES)
    assert found == names


def test_frames_with_missing_values_are_dropped_and_counted(tmp_path):
    table = pd.DataFrame(VALUES, columns=NAMES).astype(object)
    table.iloc[3, 2], table.iloc[5, 0], table.iloc[5, 1] = "n/a", "", "inf"
    table.to_csv(tmp_path / "s.tsv", sep="\t", index=False)
    scan = series_scan(tmp_path / "s.tsv")
    assert (scan.frames_before, len(scan.series)) == (70, 68)
    np.testing.assert_array_equal(scan.series, np.delete(VALUES, (3, 5), 0).astype(np.float32))


def test_numbers_beyond_single_precision_are_not_finite(tmp_path):
    values = VALUES.copy()
    values[4, 1] = 1e200
    np.save(tmp_path / "s.npy", values)
    scan = series_scan(tmp_path / "s.npy")
    assert len(scan.series) == 69 and np.isfinite(scan.series).all()


def test_constant_rois_become_zero(tmp_path):
    values = VALUES.copy()
    values[:, 1], values[:, 4] = 7, 0
    np.save(tmp_path / "s.npy", values)
    scan = series_scan(tmp_path / "s.npy")
    assert scan.constant_rois == 2
    assert not scan.series[:, [1, 4]].any()


def test_constant_means_without_variation_in_single_precision():
    noise = np.random.default_rng(0).normal(size=(50, 1))
    values = np.hstack([1e3 + 1e-5 * noise, 1e3 + noise, noise, 0 * noise])
    assert constant_columns(values).tolist() == [True, False, False, True]
    assert constant_columns(np.zeros((0, 3))).all()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("s.tsv", "", "no line of numbers"),
        ("s.tsv", "# a b\n", "no line of numbers"),
        ("s.tsv", "a\tb\n", "unreadable file"),
        ("s.tsv", "1.5\t2\n3\tx\n", "could not convert"),
        ("s.tsv", "a\tb\n3\tx\n", "could not convert"),
        ("s.csv", "1.0,2\n3\n4,5,6\n", "unreadable file"),
        ("s.npy", "not numpy", "unreadable file"),
        ("s.mat", "not MATLAB", "unreadable file"),
        ("s.mat", "", "unreadable file"),
        ("s.h5", "not HDF5", "unreadable file"),
        ("s.pkl", "x", "unknown file type: s.pkl is none of .1D"),
    ],
)
def test_bad_files_are_reasons(tmp_path, name, content, reason):
    (tmp_path / name).write_text(content)
    with pytest.raises(Unusable, match=reason):
        series_scan(tmp_path / name)


def test_array_of_another_shape_is_a_reason(tmp_path):
    np.save(tmp_path / "s.npy", np.zeros((3, 4, 5)))
    with pytest.raises(Unusable, match="3-dimensional"):
        series_scan(tmp_path / "s.npy")


def test_pickled_arrays_are_refused(tmp_path):
    """Loading a pickle runs what it says, so it must not be loaded at all."""
    (tmp_path / "ran").unlink(missing_ok=True)

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    np.save(tmp_path / "s.npy", np.array([[Trap()]], dtype=object), allow_pickle=True)
    with pytest.raises(Unusable, match=r"unreadable file: s\.npy .*allow_pickle=False"):
        series_scan(tmp_path / "s.npy")
    assert not (tmp_path / "ran").exists()


def test_array_is_found_by_its_name(tmp_path):
    savemat(tmp_path / "s.mat", {"one": VALUES, "two": VALUES + 1})
    with h5py.File(tmp_path / "s.h5", "w") as store:
        store["rest/one"], store["rest/two"] = VALUES, VALUES + 1
    for path, name in ((tmp_path / "s.mat", "two"), (tmp_path / "s.h5", "/rest/two")):
        np.testing.assert_array_equal(read_series_file(path, name)[0], VALUES + 1)
        with pytest.raises(Unusable, match=r"found: .*one, .*two; name it under source\.variable"):
            read_series_file(path)
        with pytest.raises(Unusable, match="holds no 'three', only"):
            read_series_file(path, "three")


def test_matlab_73_is_transposed_back(tmp_path):
    with h5py.File(tmp_path / "s.mat", "w", userblock_size=512) as store:
        store["series"] = VALUES.T
    np.testing.assert_array_equal(read_series_file(tmp_path / "s.mat")[0], VALUES)


def test_hdf5_that_points_to_another_file_is_refused(tmp_path):
    VALUES.tofile(tmp_path / "secret")
    _write_array(tmp_path / "other.h5", VALUES)
    with h5py.File(tmp_path / "s.h5", "w") as store:
        store["linked"] = h5py.ExternalLink("other.h5", "series")
        store.create_dataset("a", VALUES.shape, "f8", external=[("secret", 0, VALUES.nbytes)])
    for name, reason in (("linked", "holds no 'linked'"), ("a", "in another file")):
        with pytest.raises(Unusable, match=reason):
            read_series_file(tmp_path / "s.h5", name)


@pytest.fixture
def own_data(tmp_path):
    """Six sites with eight subjects each, one file type per site; the five lines of a user."""
    folder = tmp_path / "data" / "mylab"
    rows = ["participant_id\tsite\tgroup"]
    endings = (".1D", ".tsv", ".csv", ".npy", ".txt", ".tsv")
    draw = np.random.default_rng(1)
    for site, ending in enumerate(endings):
        for number in range(8):
            subject = f"s{site}{number}"
            rows.append(f"{subject}\tsite{site}\t{'case' if number % 2 else 'control'}")
            path = folder / "series" / f"site{site}" / f"{subject}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            values = draw.normal(size=(70, 6))
            if ending == ".npy":
                np.save(path, values)
            else:
                np.savetxt(path, values, delimiter="," if ending == ".csv" else "\t")
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    dataset = {
        "cohort": "mylab",
        "source": {"kind": "series", "folder": "mylab", "pattern": "series/{site}/{subject}.tsv"},
        "columns": {"subject": "participant_id", "site": "site", "label": "group"},
        "label": {"positive": "case", "negative": "control"},
        "tr": {"site1": 2.0},
        "rois": {"expected": 6},
    }
    return folder.parent, dataset


def test_candidates_of_own_data(own_data):
    data_dir, dataset = own_data
    candidates = {c["subject"]: c for c in find_candidates(open_source(dataset, data_dir))}
    assert len(candidates) == 48
    assert candidates["s10"]["excluded"] == ""
    assert (candidates["s10"]["tr"], candidates["s50"]["tr"]) == ("2.0", "n/a")
    assert candidates["s11"]["label"] == "1"
    assert candidates["s00"]["excluded"] == "missing file: mylab/series/site0/s00.tsv"


def test_own_data_from_files_to_series(own_data, run_cohort, tmp_path):
    data_dir, dataset = own_data
    for ending in ("1D", "csv", "npy", "txt"):
        for path in data_dir.rglob(f"*.{ending}"):
            values, _ = read_series_file(path)
            np.savetxt(path.with_suffix(".tsv"), values, delimiter="\t")
    result = run_cohort(dataset, data_dir, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    assert "48 of 48 candidate subjects kept" in result.stderr


def test_tables_cannot_lead_out_of_the_data_folder(own_data):
    data_dir, dataset = own_data
    table = data_dir / "mylab" / "participants.tsv"
    lines = table.read_text()
    for bad in ("../../../../etc/passwd", "site1/../s11", "..", "/etc/passwd", "a\\b", "a" * 300):
        table.write_text(lines.replace("s10", bad))
        with pytest.raises(BrioError, match=r"participants\.tsv has the subject .* file name"):
            find_candidates(open_source(dataset, data_dir))
    table.write_text(lines.replace("\tsite1\t", "\t../../etc\t"))
    with pytest.raises(BrioError, match=r"has the site '\.\./\.\./etc'"):
        find_candidates(open_source(dataset, data_dir))


def test_pattern_knows_subject_and_site_only(own_data):
    data_dir, dataset = own_data
    dataset["source"]["pattern"] = "{subject}_{session}.tsv"
    with pytest.raises(BrioError, match=r"source\.pattern of cohort mylab .* only use \{subject\}"):
        find_candidates(open_source(dataset, data_dir))


def test_missing_site_in_the_name_of_a_file_is_a_reason(own_data):
    data_dir, dataset = own_data
    table = data_dir / "mylab" / "participants.tsv"
    table.write_text(table.read_text().replace("s10\tsite1", "s10\tn/a"))
    found = {c["subject"]: c["excluded"] for c in find_candidates(open_source(dataset, data_dir))}
    assert found["s10"] == "missing phenotype: no site; missing file: its name needs the site"


@pytest.mark.parametrize("folder", ["/etc", "../elsewhere"])
def test_folder_cannot_lead_out_of_the_data_folder(own_data, folder):
    data_dir, dataset = own_data
    with pytest.raises(BrioError, match=r"source\.folder of cohort mylab leads to"):
        open_source(dataset | {"source": dataset["source"] | {"folder": folder}}, data_dir)


def test_no_scan_at_all_means_missing_data(own_data):
    data_dir, dataset = own_data
    source = dataset["source"] | {"pattern": "elsewhere/{subject}.tsv"}
    dataset = dataset | {"source": source, "how_to_get": "Ask the lab."}
    with pytest.raises(BrioError, match=r"cohort mylab are missing: none of .* Ask the lab\."):
        find_candidates(open_source(dataset, data_dir))
