"""Rows without a file, files without a row, and files that hold something else than series."""

import gzip

import numpy as np
import pytest

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.check import check_cohort
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.readers.series import read_series_file, series_scan
from brio_core.cohorts.scan import Unusable
from brio_core.cohorts.tables import read_table
from brio_core.reporting import results
from brio_core.system.errors import BrioError

ROIS, FRAMES = 6, 70


@pytest.fixture
def lab(tmp_path):
    """Six sites of eight subjects; returns the folder, and the dataset with its data folder."""
    folder = tmp_path / "data" / "lab"
    (folder / "series").mkdir(parents=True)
    draw = np.random.default_rng(0)
    rows = ["id\tsite\tgroup"]
    for site in "ABCDEF":
        for number in range(8):
            rows.append(f"{site}{number}\t{site}\t{('case', 'control')[number % 2]}")
            np.savetxt(folder / "series" / f"{site}{number}.tsv", draw.normal(size=(FRAMES, ROIS)),
                       delimiter="\t")  # fmt: skip
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    dataset = {
        "cohort": "lab",
        "source": {"kind": "series", "folder": "lab", "pattern": "series/{subject}.tsv"},
        "columns": {"subject": "id", "site": "site", "label": "group"},
        "label": {"positive": "case", "negative": "control"},
        "rois": {"expected": ROIS},
        "inclusion": {"min_subjects_per_class": 2},
    }
    return folder, (dataset, folder.parent)


def _edit(folder, *changes):
    table = folder / "participants.tsv"
    text = table.read_text()
    for old, new in changes:
        text = text.replace(old, new)
    table.write_text(text)


def test_placeholders_are_no_subjects_and_their_scans_have_no_row(lab):
    folder, given = lab
    _edit(folder, ("\nA0\t", "\nno_filename\t"), ("\nB1\t", "\nno_filename\t"), ("\nC2\t", "\n\t"))
    report = check_cohort(*given)
    assert report.exclusions == [
        "row 1: no id in the table: id is no_filename",
        "row 10: no id in the table: id is no_filename",
        "row 19: no id in the table: id is n/a",
        "A0: no row in the table: lab/series/A0.tsv is not in participants.tsv",
        "B1: no row in the table: lab/series/B1.tsv is not in participants.tsv",
        "C2: no row in the table: lab/series/C2.tsv is not in participants.tsv",
    ]
    assert "excluded, no row in the table: 3" in report.summary
    assert "excluded, no id in the table: 3" in report.summary
    rows = {row["subject"]: row for row in report.rows}
    assert (rows["row 10"]["site"], rows["row 10"]["label"]) == ("B", "0")


def test_workflow_tells_them_too_and_stops_for_rows_only(lab, run_cohort, tmp_path):
    folder, (dataset, data_dir) = lab
    (folder / "series" / "Z9.tsv").write_text("1\t2\n")
    (folder / "series" / "A0.tsv").unlink()
    result = run_cohort(dataset, data_dir, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    table = read_table(tmp_path / "out" / "inclusion.tsv").set_index("subject")["reason"]
    assert table["A0"] == "missing file: lab/series/A0.tsv"
    assert table["Z9"] == "no row in the table: lab/series/Z9.tsv is not in participants.tsv"
    result = run_cohort(dataset, data_dir, tmp_path / "stop", "stop")
    assert "1 of 49 subjects of cohort lab cannot be used (A0: missing file" in result.stderr


def test_tables_and_labels_beside_the_scans_are_no_scans(lab):
    folder, (dataset, data_dir) = lab
    for path in (folder / "series").iterdir():
        path.rename(folder / path.name)
    (folder / "labels.tsv").write_text("1\ta\n")
    dataset["source"] |= {"pattern": "{subject}.tsv"}
    dataset["rois"]["labels"] = "labels.tsv"
    found = list(open_reader(dataset, data_dir).scan_files())
    assert len(found) == 48 and ("A0", folder / "A0.tsv") in found


def test_patterns_with_sites_and_brackets(lab):
    folder, (dataset, data_dir) = lab
    place = folder / "roi[1]" / "A"
    place.mkdir(parents=True)
    (folder / "series" / "A3.tsv").rename(place / "A_x_new.tsv")
    (folder / "series" / "A4.tsv").rename(place / "B_x_new.tsv")
    dataset["source"]["pattern"] = "roi[1]/{site}/{site}_{subject}_new.tsv"
    found = list(open_reader(dataset, data_dir).scan_files())
    assert found == [("x", place / "A_x_new.tsv")]


def test_images_without_a_row(demo_data, load_dataset, tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    for name in ("derivatives", "atlas"):
        (folder / name).symlink_to(demo_data / "demo" / name)
    text = (demo_data / "demo" / "participants.tsv").read_text()
    rows = [row for row in text.splitlines() if not row.startswith("sub-002")]
    (folder / "participants.tsv").write_text("\n".join(rows) + "\n")
    last = find_candidates(open_reader(load_dataset("demo"), tmp_path))[-1]
    assert last["subject"] == "sub-002"
    assert last["excluded"].startswith("no row in the table: demo/derivatives/prep/sub-002/func/")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("participants.tsv", ","),
        ("participants.tsv", ";"),
        ("participants.csv", ";"),
        ("participants.csv", "\t"),
        ("participants.TSV", "\t"),
        ("participants.csv.gz", ","),
        ("participants.csv.gz", ";"),
    ],
)
def test_tables_with_other_separators_are_read(lab, name, change):
    folder, (dataset, data_dir) = lab
    text = (folder / "participants.tsv").read_text().replace("\t", change)
    (folder / "participants.tsv").unlink()
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (folder / name).write_bytes(data)
    dataset["source"]["participants"] = name
    candidates = find_candidates(open_reader(dataset, data_dir))
    assert len(candidates) == 48 and not any(one["excluded"] for one in candidates)


def test_typos_of_columns_are_recognised(lab):
    _, (dataset, data_dir) = lab
    for columns, words in (
        ({"site": "Site"}, "no column 'Site' (the site); did you mean 'site'? Correct"),
        ({"label": "groop"}, "no column 'groop' (the label); did you mean 'group'? Correct"),
        ({"label": "zzz"}, "no column 'zzz' (the label); add it, or name"),
    ):
        wrong = dataset | {"columns": dataset["columns"] | columns}
        with pytest.raises(BrioError) as error:
            find_candidates(open_reader(wrong, data_dir))
        assert words in str(error.value)
    wrong = dataset | {"inclusion": {"select": {"Sites": ["A"]}}}
    with pytest.raises(BrioError, match=r"no column 'Sites'; did you mean 'site'\? correct incl"):
        find_candidates(open_reader(wrong, data_dir))


def test_another_format_is_pointed_out(lab):
    _, (dataset, data_dir) = lab
    dataset["source"]["pattern"] = "series/{subject}.csv"
    words = r"first would be .*A0\.csv, but A0\.tsv lies there: correct source\.pattern"
    with pytest.raises(BrioError, match=words):
        find_candidates(open_reader(dataset, data_dir))


@pytest.mark.parametrize("name", ["s.TSV", "s.tsv.gz", "s.1D.gz", "s.CSV", "s.csv.GZ", "s.NPY"])
def test_endings_in_capitals_and_compressed_files(tmp_path, name):
    values = np.random.default_rng(0).normal(size=(5, 3))
    if name == "s.NPY":
        with open(tmp_path / name, "wb") as stream:
            np.save(stream, values)
    else:
        separator = "," if "csv" in name.lower() else "\t"
        text = "\n".join(separator.join(map(repr, row)) for row in values.tolist()) + "\n"
        data = gzip.compress(text.encode()) if name.lower().endswith(".gz") else text.encode()
        (tmp_path / name).write_bytes(data)
    found, _ = read_series_file(tmp_path / name)
    np.testing.assert_array_equal(found, values)


@pytest.mark.parametrize(
    ("name", "separator"),
    [("s.csv", ";"), ("s.csv", "\t"), ("s.tsv", ","), ("s.tsv", " "), ("s.txt", ","),
     ("s.txt", ", "), ("s.1D", ";")],
)  # fmt: skip
@pytest.mark.parametrize("header", ["", "a{0}b{0}c\n", "# words, more; words\n"])
def test_series_with_other_separators_are_read(tmp_path, name, separator, header):
    values = np.random.default_rng(0).normal(size=(5, 3))
    text = "\n".join(separator.join(map(repr, row)) for row in values.tolist()) + "\n"
    (tmp_path / name).write_text(header.format(separator) + text)
    found, _ = read_series_file(tmp_path / name)
    np.testing.assert_array_equal(found, values)


def test_decimal_commas_and_damaged_archives_are_named(tmp_path):
    (tmp_path / "s.csv").write_text("1,5;2,5\n3,5;4,5\n")
    with pytest.raises(Unusable, match=r"s\.csv \(it has decimal commas; write decimal points"):
        read_series_file(tmp_path / "s.csv")
    (tmp_path / "s.tsv.gz").write_bytes(gzip.compress(b"1.5\t2.5\n" * 99)[:-12])
    (tmp_path / "t.tsv.gz").write_bytes(b"no gzip")
    np.savez(tmp_path / "u.npz", a=np.zeros((9, 3)))
    (tmp_path / "u.npz").write_bytes((tmp_path / "u.npz").read_bytes()[:60])
    (tmp_path / "v.npz").write_bytes(b"no zip")
    for name in ("s.tsv.gz", "t.tsv.gz", "u.npz", "v.npz"):
        with pytest.raises(Unusable, match=f"unreadable file: {name} "):
            read_series_file(tmp_path / name)


def test_archives_of_numpy(tmp_path):
    values = np.random.default_rng(0).normal(size=(5, 3))
    np.savez(tmp_path / "s.npz", bold=values, tr=2.0)
    np.testing.assert_array_equal(read_series_file(tmp_path / "s.npz")[0], values)
    np.savez(tmp_path / "t.npz", bold=values, other=values[1:])
    np.testing.assert_array_equal(read_series_file(tmp_path / "t.npz", "other")[0], values[1:])
    with pytest.raises(Unusable, match=r"found: bold, other; name it under source\.variable"):
        read_series_file(tmp_path / "t.npz")
    np.savez(tmp_path / "p.npz", bold=np.array([object()]))
    with pytest.raises(Unusable, match="unreadable file"):
        read_series_file(tmp_path / "p.npz")


@pytest.mark.parametrize("diagonal", [1.0, 0.0, np.inf, np.nan])
@pytest.mark.parametrize("digits", [3, 12])
def test_connectivity_is_no_series(tmp_path, diagonal, digits):
    matrix = np.corrcoef(np.random.default_rng(0).normal(size=(9, 40))).round(digits)
    np.fill_diagonal(matrix, diagonal)
    np.savetxt(tmp_path / "s.tsv", matrix, delimiter="\t")
    with pytest.raises(Unusable, match=r"looks like a connectivity matrix: s\.tsv is square"):
        series_scan(tmp_path / "s.tsv")


def test_square_series_are_series(tmp_path):
    np.save(tmp_path / "s.npy", np.random.default_rng(0).normal(size=(9, 9)))
    assert series_scan(tmp_path / "s.npy").series.shape == (9, 9)


def test_values_beyond_any_scanner(tmp_path):
    values = np.random.default_rng(0).normal(size=(50, 3))
    np.save(tmp_path / "s.npy", 1e4 + 6e5 * values)
    assert len(series_scan(tmp_path / "s.npy").series) == 50
    values[7, 1] = 9.97e36
    np.save(tmp_path / "s.npy", values)
    with pytest.raises(Unusable, match=r"impossible values: up to 1\.0e\+37 in s\.npy, and no"):
        series_scan(tmp_path / "s.npy")


def test_a_transposed_file_gets_a_hint(lab):
    folder, given = lab
    path = folder / "series" / "A0.tsv"
    np.savetxt(path, np.loadtxt(path).T, delimiter="\t")
    (line,) = check_cohort(*given).exclusions
    assert line == "A0: wrong number of ROIs: 70 instead of 6; transposed?"


@pytest.mark.parametrize("program", ["connect", "blocklength"])
def test_nobody_is_told_to_delete_a_file_of_theirs(program, run_script, tmp_path):
    """A raw scan in place of series.h5: it may be the only copy."""
    scan = tmp_path / "scan.1D"
    scan.write_text("1.5 2.5\n3.5 4.5\n")
    arguments = {
        "connect": ("--series", scan),
        "blocklength": ("--series", scan, "--participants", scan, "--split", scan,
                        "--settings", "{}"),
    }[program]  # fmt: skip
    result = run_script(program, *arguments, "--out", tmp_path / "out")
    assert result.returncode == 1
    assert f"{scan} is not a" in result.stderr
    assert "name the right file, or, if the workflow made this one, delete it" in result.stderr


@pytest.mark.parametrize("content", ["", "subject,fold\na,b\n", "subject,fold,logit\n\0\n"])
def test_a_csv_of_the_user_is_to_be_corrected(tmp_path, content):
    (tmp_path / "theirs.csv").write_text(content)
    with pytest.raises(BrioError, match=r"theirs\.csv .*; correct it"):
        results.read_table(tmp_path / "theirs.csv", ("subject",), ("logit",), ours=False)
