"""ROI series from text tables and from arrays in .npy, .mat and .h5 files."""

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from brio_core.cohorts.atlases.regions import Regions
from brio_core.cohorts.readers.series import _MISSING_NUMBERS, read_series_file, series_scan
from brio_core.cohorts.scan import Unusable, constant_columns
from brio_core.cohorts.stores import Rois

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


@pytest.mark.parametrize("name", ["s.1D", "s.tsv", "s.csv"])
def test_plain_numbers_need_no_pandas(tmp_path, monkeypatch, name):
    """NumPy reads them in a third of the time, and with the same values."""
    _write(tmp_path / name, NAMES)
    by_pandas = pd.read_csv(tmp_path / name, sep=None, engine="python").to_numpy()
    monkeypatch.setattr(pd, "read_csv", None)
    np.testing.assert_array_equal(read_series_file(tmp_path / name)[0], by_pandas)


def test_frames_with_missing_values_are_dropped_and_counted(tmp_path):
    table = pd.DataFrame(VALUES, columns=NAMES).astype(object)
    table.iloc[3, 2], table.iloc[5, 0], table.iloc[5, 1] = "n/a", "", "inf"
    table.to_csv(tmp_path / "s.tsv", sep="\t", index=False)
    scan = series_scan(tmp_path / "s.tsv")
    assert (scan.frames_before, len(scan.series)) == (70, 68)
    np.testing.assert_array_equal(scan.series, np.delete(VALUES, (3, 5), 0).astype(np.float32))


@pytest.mark.parametrize("name", ["s.tsv", "s.csv", "s.txt", "s.1D"])
@pytest.mark.parametrize(
    "codes",
    [
        (2001, 2002, 2101, 2102, 2111, 9170),
        (1, 2, 3, 5, 6, 7),
        (0, 2, 3, 4, 5, 6),
        (2001, 2002, 2102, 2101, 2111, 9170),
        (6, 5, 4, 3, 2, 1),
    ],
)
def test_numbers_of_regions_are_no_frame(tmp_path, name, codes):
    path = tmp_path / name
    _write(path, [str(code) for code in codes])
    values, names = read_series_file(path)
    np.testing.assert_array_equal(values, VALUES)
    assert names == tuple(str(code) for code in codes)
    regions = Regions(path, Rois.named(NAMES[::-1]), np.array(codes[::-1]))
    assert regions.of_series(names).names == NAMES


def test_header_with_spaces_or_before_a_missing_frame_is_no_frame(tmp_path):
    for text in ("2001, 2002\n0.5, 3\n", "2001,2002\n\nn/a,NA\n0.5,3\n"):
        (tmp_path / "s.csv").write_text(text)
        values, names = read_series_file(tmp_path / "s.csv")
        assert names == ("2001", "2002") and values[-1].tolist() == [0.5, 3]


@pytest.mark.parametrize("frames", ["5\t-7\n", "n/a\t7\n0.5\t1\n", ""])
def test_whole_numbers_that_ascend_may_be_either(tmp_path, frames):
    """Neither a frame nor the names may be lost in silence; both ways out must be ways out."""
    path = tmp_path / "s.tsv"
    path.write_text("2001\t2002\n" + frames)
    with pytest.raises(Unusable, match=r"unreadable file: s\.tsv .*begin a header with '#', or"):
        read_series_file(path)
    path.write_text("2001.0\t2002\n" + frames)
    values, names = read_series_file(path)
    assert names == () and values[0].tolist() == [2001, 2002]
    path.write_text("#2001\t2002\n3\t4\n" + frames)
    values, names = read_series_file(path)
    assert names == ("2001", "2002") and values[0].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("text", "names", "frames"),
    [
        ("1\t2\n3\t4\n", ("1", "2"), 1),
        ("0\t1\n3\t4\n", ("0", "1"), 1),
        ("5\t4\n3\t2.5\n", (), 2),
        ("4\t4\n3\t2.5\n", (), 2),
        ("4\t4\t5\n3\t2.5\t1\n", (), 2),
        ("7\t4\t5\n3\t2\t1\n", (), 2),
        ("-4\t4\n3\t2.5\n", (), 2),
        ("4\n2.5\n", (), 2),
        ("3\t4\t5\n2.5\t1\n", (), 2),
    ],
)
def test_other_first_lines_of_numbers_are_read_as_ever(tmp_path, text, names, frames):
    (tmp_path / "s.tsv").write_text(text)
    values, found = read_series_file(tmp_path / "s.tsv")
    assert (found, len(values)) == (names, frames)


@pytest.mark.parametrize(
    "missing", ["NA", "NaN", "nan", "null", "NULL", "None", "N/A", "n/a", "<NA>", "-nan", ""]
)
def test_first_frame_with_a_missing_value_is_no_header(tmp_path, missing):
    (tmp_path / "s.csv").write_text(f"0.5,{missing}\n1.5,2\n{missing},3\n")
    values, names = read_series_file(tmp_path / "s.csv")
    np.testing.assert_array_equal(values, [[0.5, np.nan], [1.5, 2], [np.nan, 3]])
    assert names == ()


def test_spellings_of_missing_values_are_those_of_pandas():
    from pandas._libs.parsers import STR_NA_VALUES

    assert set(_MISSING_NUMBERS) == set(STR_NA_VALUES)


@pytest.mark.parametrize("name", ["s.tsv", "s.csv", "s.txt"])
@pytest.mark.parametrize("header", [None, NAMES, ("2001", "2002", "2101", "2102", "2111", "9170")])
def test_byte_order_mark_is_part_of_nothing(tmp_path, name, header):
    path = tmp_path / name
    _write(path, header)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    values, names = read_series_file(path)
    np.testing.assert_array_equal(values, VALUES)
    assert names == (header or ())


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
    assert len(scan.dead) == 2
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
        ("s.tsv", "a\tb\n3,5\t-0,7\n", "it has decimal commas; write decimal points"),
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


def test_other_encodings_are_a_reason(tmp_path):
    (tmp_path / "s.tsv").write_text("a\tb\n1.5\t2\n", encoding="utf-16")
    with pytest.raises(Unusable, match="it is not in UTF-8; save it so"):
        read_series_file(tmp_path / "s.tsv")


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
    with pytest.raises(Unusable, match=r"unreadable file: s\.npy .*Python objects"):
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


FIRST = {
    "index": (np.arange(70), "\t0\t1\t2"),
    "cut index": (np.r_[0:30, 40:80], ""),
    "seconds": (np.round(np.arange(70) * 0.667, 2), ""),
    "unnamed": (np.random.default_rng(1).normal(size=70), "\tA\tB\tC"),
    "time": (np.random.default_rng(1).normal(size=70), "Time\tA\tB\tC"),
    "a region": (np.random.default_rng(1).normal(size=70), "Timelobe\tA\tB\tC"),
    "no header": (np.random.default_rng(1).normal(size=70), ""),
}


@pytest.mark.parametrize("name", FIRST)
def test_a_column_that_counts_frames_is_no_roi(tmp_path, name):
    first, header = FIRST[name]
    values = np.c_[first, np.random.default_rng(0).normal(size=(70, 3))]
    np.savetxt(tmp_path / "s.tsv", values, "%g", "\t", header=header, comments="")
    if name in ("a region", "no header"):
        assert series_scan(tmp_path / "s.tsv").series.shape == (70, 4)
        return
    with pytest.raises(
        Unusable, match=r"the first of s\.tsv counts frames and is no ROI; leave it"
    ):
        series_scan(tmp_path / "s.tsv")
