"""Own data: a table of participants and a series file for each, as the README asks for."""

import numpy as np
import pytest

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.readers.series import read_series_file
from brio_core.cohorts.tables import read_table
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
