"""Data of a lab of its own: the five lines of the manual, and text tables as users keep them."""

import gzip

import numpy as np
import pytest

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.readers.series import read_series_file
from brio_core.cohorts.tables import read_table, write_table
from brio_core.system.errors import BrioError


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
    candidates = {c["subject"]: c for c in find_candidates(open_reader(dataset, data_dir))}
    assert len(candidates) == 48
    assert candidates["s10"]["excluded"] == ""
    assert (candidates["s10"]["tr"], candidates["s50"]["tr"]) == ("2.0", "n/a")
    assert candidates["s11"]["label"] == "1"
    missing = "missing file: mylab/series/site0/s00.tsv (s00.1D lies there)"
    assert candidates["s00"]["excluded"] == missing


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
    for bad in ("../../../../etc/passwd", "site1/../s11", "..", "/etc/passwd", "a\\b"):
        table.write_text(lines.replace("s10", bad))
        with pytest.raises(BrioError, match=r"participants\.tsv has the subject .* file name"):
            find_candidates(open_reader(dataset, data_dir))
    table.write_text(lines.replace("\tsite1\t", "\t../../etc\t"))
    with pytest.raises(BrioError, match=r"has the site '\.\./\.\./etc'"):
        find_candidates(open_reader(dataset, data_dir))


def test_pattern_knows_subject_and_site_only(own_data):
    data_dir, dataset = own_data
    dataset["source"]["pattern"] = "{subject}_{session}.tsv"
    with pytest.raises(BrioError, match=r"source\.pattern of cohort mylab .* only use \{subject\}"):
        find_candidates(open_reader(dataset, data_dir))


def test_missing_site_in_the_name_of_a_file_is_a_reason(own_data):
    data_dir, dataset = own_data
    table = data_dir / "mylab" / "participants.tsv"
    table.write_text(table.read_text().replace("s10\tsite1", "s10\tn/a"))
    found = {c["subject"]: c["excluded"] for c in find_candidates(open_reader(dataset, data_dir))}
    assert found["s10"] == "missing phenotype: no site; missing file: its name needs the site"


@pytest.mark.parametrize("folder", ["/etc", "../elsewhere"])
def test_folder_cannot_lead_out_of_the_data_folder(own_data, folder):
    data_dir, dataset = own_data
    with pytest.raises(BrioError, match=r"source\.folder of cohort mylab leads to"):
        open_reader(dataset | {"source": dataset["source"] | {"folder": folder}}, data_dir)


def test_no_scan_at_all_means_missing_data(own_data):
    data_dir, dataset = own_data
    source = dataset["source"] | {"pattern": "elsewhere/{subject}.tsv"}
    dataset = dataset | {"source": source, "how_to_get": "Ask the lab."}
    with pytest.raises(BrioError, match=r"cohort mylab are missing: none of .* Ask the lab\."):
        find_candidates(open_reader(dataset, data_dir))


def test_unpaired_quotes_swallow_no_subject(own_data):
    data_dir, dataset = own_data
    table = data_dir / "mylab" / "participants.tsv"
    head, *rows = table.read_text().splitlines()
    notes = {0: '"tall', 1: '5" tall', 20: 'said "no', 30: '"', 47: '"end'}
    rows = [f"{row}\t{notes.get(index, 'none')}" for index, row in enumerate(rows)]
    table.write_text("\n".join([f"{head}\tnote", *rows]) + "\n")
    assert len(find_candidates(open_reader(dataset, data_dir))) == 48
    assert read_table(table)["note"][1] == '5" tall'


def _table(path, text):
    path.write_text(text)
    return read_table(path).to_dict(orient="list")


@pytest.mark.parametrize("name", ["t.tsv", "t.csv"])
def test_quoted_tables_are_read_without_their_quotes(tmp_path, name):
    rows = ['"id","site","note"', '"s1","A","a ""b"" c"', '"s2","","x y"', "s3,B,"]
    text = "\ufeff" + "\r\n".join(rows) + "\r\n"
    found = _table(tmp_path / name, text.replace(",", "\t") if name == "t.tsv" else text)
    assert found["id"] == ["s1", "s2", "s3"] and found["site"] == ["A", "n/a", "B"]
    assert found["note"] == ['a "b" c', "x y", "n/a"]
    assert list(found) == ["id", "site", "note"]


def test_commas_in_quotes_and_repeated_columns_stay(tmp_path):
    found = _table(tmp_path / "t.csv", 'id,note,note,\n\n   \ns1,"a, b",c\ns2,5" tall,,x\n')
    assert found["id"] == ["s1", "s2"] and found["note"] == ["a, b", '5" tall']
    assert found["note.1"] == ["c", "n/a"] and found["Unnamed: 3"] == ["n/a", "x"]


@pytest.mark.parametrize(
    ("name", "text", "where"),
    [
        ("t.csv", 'id,note\ns1,x\ns2,"tall\ns3,y\ns4,"z\n', "column 'note' of line 3"),
        ("t.csv", 'id,note\n\ns1,"two\nlines"\n', "column 'note' of line 3"),
        ("t.csv", 'id,note\ns1,x\ns2,"tall', "column 'note' of line 3"),
        ("t.csv", 'id,"note\ns1,x\n', "column 'note s1,x' of line 1"),
        ("t.tsv", 'id\tnote\tsite\ns1\t"two\nlines"\tA\n', "goes on in line 3"),
        ("t.tsv", 'id\tnote\ns1\t"two\nlines"\ns2\tx\n', "goes on in line 3"),
    ],
)
def test_line_breaks_in_cells_are_refused(tmp_path, name, text, where):
    with pytest.raises(BrioError, match=rf"{name} has a .*{where}; take"):
        _table(tmp_path / name, text)


@pytest.mark.parametrize(("name", "separator"), [("t.tsv", "\t"), ("t.csv", ",")])
def test_separators_at_the_end_shift_no_column(tmp_path, name, separator):
    text = "id,site,note\ns1,A,x,\ns2,B,y, ,\ns3,C\n".replace(",", separator)
    found = _table(tmp_path / name, text)
    assert found == {"id": ["s1", "s2", "s3"], "site": list("ABC"), "note": ["x", "y", "n/a"]}
    with pytest.raises(BrioError, match=rf"{name} has more cells in line 3 than names in its"):
        _table(tmp_path / name, text.replace(f"y{separator} ", f"y{separator}z"))
    with pytest.raises(BrioError, match=rf"{name} has more cells in line 2 than names in its"):
        _table(tmp_path / name, "site,note\ns1,A,x\ns2,B,y\n".replace(",", separator))


def test_compressed_tables_are_read(tmp_path):
    with gzip.open(tmp_path / "t.tsv.gz", "wt") as stream:
        stream.write("id\tsite\ns1\tA\n")
    assert read_table(tmp_path / "t.tsv.gz").to_dict(orient="list") == {"id": ["s1"], "site": ["A"]}


def test_our_own_tables_keep_quotes(tmp_path):
    values = ['"A', '"A"', 'A"', '""', 'a "b" c', "plain"]
    write_table(tmp_path / "t.tsv", ("site", "n"), [{"site": v, "n": 1} for v in values])
    assert read_table(tmp_path / "t.tsv")["site"].tolist() == values
