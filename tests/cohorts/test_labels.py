"""Names and places of regions for series that only number them; all labels here are made up."""

import csv
import json
import os
import tomllib
from pathlib import Path

import numpy as np
import pytest

from brio_core.cohorts.atlases.atlas import read_atlas
from brio_core.cohorts.atlases.regions import read_labels
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.stores import read_series
from brio_core.evaluation.diagnostics.run import roi_records
from brio_core.system.errors import BrioError
from brio_core.training.results import write_records
from tests.cohorts.layouts import bids_dataset, labels, save, write_atlas
from tests.reporting.diagnosed import write_diagnostics
from tests.reporting.standins import make_table

# As AAL numbers its regions: ascending, with gaps, and not from one.
CODES = (2001, 2002, 2101, 9170)
NAMES = ("Front_L", "Front_R", "Side_L", "Middle")
AAL = "".join(f"S{code}\t{name}\t{code}\n" for code, name in zip(CODES, NAMES))
COMPARED = """ROI number, volume, center of mass,Dosenbach,AAL,Harvard-Oxford
1, 162, (-39.6;-85.4;1.4),["None": 0.9],["Front_L": 0.3]["Side_L": 0.7],["Left Front; upper": 0.8]
2, 10, (4.0;5.5;-6.0),["None": 0.9],["None": 1.00],["Right Front": 0.5]["None": 0.4]
3, 11, (-8.0;0.0;0.0),["None": 0.9],["Side_L": 0.51],["None": 1.00]
4, 12, (0.0;0.0;0.0),["None": 0.9],["None": 0.51],["None": 1.00]
"""


@pytest.fixture
def folder(tmp_path):
    """``data/lab`` with label files of every layout, an image, and nothing else."""
    lab = tmp_path / "data" / "lab"
    write_atlas(lab)
    texts = {
        "aal.txt": AAL,
        "plain.txt": "\n".join(NAMES) + "\n",
        "compared.csv": COMPARED,
        "table.csv": "Name,Value,hemisphere\nb,7,right\na,3,L\nbackground,0,\nc,9,both\nd,11,R\n",
        "named.tsv": "name\tx\ty\tz\none\t-1\t2\t3\ntwo\t4\t5\tn/a\nsame\t1\t1\t1\nsame\t0\t1\t1\n",
    }
    for name, text in texts.items():
        (lab / name).write_text(text)
    return lab


def _source(folder, **rois):
    return open_reader(_dataset(4, **rois), folder.parent)


def _dataset(expected, **rois):
    return {
        "cohort": "lab",
        "source": {"kind": "series", "folder": "lab", "pattern": "{subject}.1D"},
        "columns": {"subject": "participant_id", "site": "site", "label": "group"},
        "label": {"positive": "case", "negative": "control"},
        "rois": {"expected": expected} | rois,
    }


@pytest.mark.parametrize(
    ("name", "names", "codes", "hemispheres"),
    [
        ("aal.txt", NAMES, CODES, ("L", "R", "L", "n/a")),
        ("plain.txt", NAMES, None, ("L", "R", "L", "n/a")),
        ("compared.csv", ("Side_L #1", "Right Front", "Side_L #3", "unnamed"), (1, 2, 3, 4),
         ("L", "R", "L", "n/a")),
        ("table.csv", ("a", "b", "c", "d"), (3, 7, 9, 11), ("L", "R", "n/a", "R")),
        ("named.tsv", ("one", "two", "same #3", "same #4"), None, ("L", "R", "R", "n/a")),
    ],
)  # fmt: skip
def test_layouts(folder, name, names, codes, hemispheres):
    found = read_labels(folder / name)
    assert found.rois.names == names
    assert (found.codes if codes is None else tuple(found.codes)) == codes
    assert _source(folder, labels=name).rois(()).hemispheres == hemispheres


def test_places_come_from_the_file_or_from_the_image(folder):
    places = _source(folder, labels="compared.csv").rois(()).centroids
    np.testing.assert_allclose(places[0], [-39.6, -85.4, 1.4], rtol=1e-6)
    assert np.isnan(_source(folder, labels="aal.txt").rois(()).centroids).all()
    placed = _source(folder, labels="aal.txt", image="atlas/labels.nii.gz").rois(())
    assert placed.names == NAMES
    volume = labels()
    for code, place in zip(CODES, placed.centroids):
        np.testing.assert_allclose(place, 3 * np.argwhere(volume == code).mean(0))
    alone = _source(folder, image="atlas/labels.nii.gz").rois(())
    assert alone.names[0] == "ROI 2001" and alone.hemispheres == ("R",) * 4
    np.testing.assert_array_equal(alone.centroids, placed.centroids)
    source = _source(folder, image="atlas/labels.nii.gz")
    assert len(source.provenance()["atlas_sha256"]) == 64


def test_header_codes_and_names_are_looked_up_and_counts_are_not(folder):
    turned = (NAMES[2], NAMES[0], NAMES[3], NAMES[1])
    source = _source(folder, labels="aal.txt")
    assert source.rois(("2101", "2001", "9170", "2002")).names == turned
    assert source.rois(("Side_L", "Front_L", "Middle", "Front_R")).names == turned
    for header in ((), ("0", "1", "2", "3"), ("1", "2", "3", "4"), ("A", "B", "C", "D")):
        assert source.rois(header).names == NAMES
    assert _source(folder, labels="plain.txt").rois(("7", "5", "3", "1")).names == NAMES
    counted = _source(folder, labels="compared.csv")
    assert counted.rois(("2", "1", "3", "4")).names[:2] == ("Right Front", "Side_L #1")


@pytest.mark.parametrize(
    ("rois", "header", "sentence"),
    [
        ({"labels": "aal.txt"}, ("2001", "2002", "2101", "2102"),
         r"region\(s\) 2102, which .*aal\.txt does not name"),
        ({"labels": "aal.txt"}, ("Front_L", "Front_R", "Side_L", "Side_R"), r"region\(s\) Side_R"),
        ({"labels": "aal.txt"}, ("2001", "2002", "2101", "2101"),
         r"aal\.txt names the region\(s\) 9170, which the series do not have"),
        ({"image": "atlas/labels.nii.gz"}, ("5", "6", "7", "8"), r"labels\.nii\.gz does not name"),
    ],
)  # fmt: skip
def test_regions_of_another_atlas_are_named(folder, rois, header, sentence):
    with pytest.raises(BrioError, match=sentence):
        _source(folder, **rois).rois(header)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a\nb\nc\n", r"x\.txt names 3 regions, but rois\.expected is 4"),
        ("a\tb\nc\td\n", r"x\.txt is no label file of a known layout"),
        ("name\tindex\na\t1\nb\ttwo\n", r"column 'index' of .*x\.txt must hold the whole numbers"),
        ("name\tx\ty\tz\na\t1\tleft\t2\n", r"column 'x', 'y', 'z' of .*x\.txt must hold numbers"),
        ("name\tName\na\tb\n", r"x\.txt has the column 'name' twice"),
        ("A\ta\t1\nB\tb\t1\n", r"x\.txt names one label twice"),
        ("name\tindex\na\t1\n\t2\n", r"x\.txt has a region without a name"),
        ("\n", r"x\.txt is empty"),
        (None, r"x\.txt does not exist, which rois\.labels of cohort lab names"),
    ],
)
def test_label_files_that_cannot_be_used_are_one_sentence(folder, text, sentence):
    if text is not None:
        (folder / "x.txt").write_text(text)
    with pytest.raises(BrioError, match=sentence):
        _source(folder, labels="x.txt").check()


def test_labels_that_are_not_text_or_lie_elsewhere(folder):
    (folder / "x.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BrioError, match=r"label file .*x\.txt cannot be read"):
        _source(folder, labels="x.txt").check()
    with pytest.raises(BrioError, match=r"rois\.labels of cohort lab leads to '\.\./x'"):
        _source(folder, labels="../x").check()


def test_image_and_labels_must_fit(folder):
    (folder / "x.txt").write_text(AAL.replace("9170", "9999"))
    with pytest.raises(BrioError, match=r"does not hold the label\(s\) 9999 that .*x\.txt names"):
        _source(folder, labels="x.txt", image="atlas/labels.nii.gz").check()
    with pytest.raises(BrioError, match=r"plain\.txt has no column 'index'"):
        _source(folder, labels="plain.txt", image="atlas/labels.nii.gz").check()


def test_atlas_of_nilearn_from_a_filled_folder(folder):
    cache = folder.parent / "atlases" / "aal_SPM12" / "aal" / "atlas"
    save(cache / "AAL.nii", labels())
    entry = "<label><index>{}</index><name>{}</name></label>"
    text = "".join(entry.format(*pair) for pair in zip(CODES, NAMES))
    (cache / "AAL.xml").write_text(f"<atlas><data>{text}</data></atlas>")
    atlas = {"fetch": "aal", "options": {"version": "SPM12"}}
    rois = _source(folder, atlas=atlas).rois(())
    assert rois.names == NAMES and np.isfinite(rois.centroids).all()
    with pytest.raises(BrioError, match=r"rois\.atlas\.options do not suit atlas 'aal'"):
        _source(folder, atlas={"fetch": "aal", "options": {"version": "SPM99"}}).check()
    with pytest.raises(BrioError, match="fetched beside an image or labels; keep one"):
        _source(folder, atlas=atlas, labels="aal.txt").check()


def test_images_have_their_names_already(folder):
    dataset = bids_dataset(folder="lab")
    dataset["rois"]["labels"] = "aal.txt"
    with pytest.raises(BrioError, match=r"rois\.labels of cohort small is of no use"):
        open_reader(dataset, folder.parent).check()


def test_profile_table_of_a_numbered_cohort_shows_names(tmp_path, run_cohort):
    """From series headed by codes, through the programs, to the five regions of the table."""
    lab, codes = tmp_path / "data" / "lab", [2001 + 10 * index for index in range(24)]
    lab.mkdir(parents=True)
    lines, draw = ["participant_id\tsite\tgroup"], np.random.default_rng(0)
    for number in range(40):
        group = "case" if number % 2 else "control"
        lines.append(f"s{number}\tsite{number // 8}\t{group}")
        header = "\t".join(f"#{code}" for code in codes)
        values = draw.normal(size=(62, 24))
        np.savetxt(lab / f"s{number}.1D", values, "%.4f", "\t", header=header, comments="")
    (lab / "participants.tsv").write_text("\n".join(lines) + "\n")
    named = {code: f"Area{code}_{'LR'[code // 10 % 2]}" for code in codes}
    rows = [f"A\t{name}\t{code}" for code, name in reversed(named.items())]
    (lab / "labels.txt").write_text("\n".join(rows) + "\n")
    result = run_cohort(_dataset(24, labels="labels.txt"), lab.parent, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    rois = read_series(tmp_path / "out" / "series.h5").rois
    assert rois.names == tuple(named.values()) and rois.hemispheres[:2] == ("L", "R")

    folders = write_diagnostics(tmp_path, "lab")
    for folder in folders:
        write_records(folder / "rois.csv", roi_records(rois))
    planned = {"pairs": [["lab", "loso"]]}
    path = make_table("roi_profiles", tmp_path / "profile", planned=planned, diagnostics=folders)
    with open(path, newline="") as stream:
        first = [row["name"] for row in csv.DictReader(stream)][:5]
    rows = json.loads(path.with_suffix(".json").read_text())["rows"]
    shown = [row["cells"][1]["text"] for row in rows if len(row["cells"]) == 4]
    assert shown == first and set(first) < set(named.values())


def test_sides_and_places_of_cc200_are_shipped_with_its_dataset(load_dataset, tmp_path):
    dataset = load_dataset("abide-cc200")
    header = tuple(f"#{number}" for number in range(1, 201))
    (tmp_path / "abide").mkdir()
    rois = open_reader(dataset, tmp_path).rois(header)
    assert rois.names == header
    assert (rois.hemispheres.count("L"), rois.hemispheres.count("R")) == (94, 106)
    np.testing.assert_allclose(rois.centroids[0], [-39.6, -85.4, 1.4], rtol=1e-6)
    (middle,) = np.flatnonzero(rois.centroids[:, 0] == 0)
    assert rois.hemispheres[middle] == "R"
    # By halves of the numbers, half of the regions would be on the wrong side.
    halves = np.repeat(["L", "R"], 100)
    assert 0.45 < np.mean(np.array(rois.hemispheres) == halves) < 0.55


def test_shipped_places_of_cc200_are_those_of_its_image(load_dataset, tmp_path):
    if "BRIO_TEST_DATA" not in os.environ:
        pytest.skip("BRIO_TEST_DATA does not name a folder with the atlas")
    image = Path(os.environ["BRIO_TEST_DATA"]) / "atlas" / "CC200.nii.gz"
    (tmp_path / "abide").mkdir()
    rois = open_reader(load_dataset("abide-cc200"), tmp_path).rois(())
    centres = read_atlas(image, None, 200).regions.rois.centroids
    np.testing.assert_allclose(rois.centroids, centres, atol=0.051)


def test_files_beside_the_code_are_packaged():
    root = Path(__file__).parents[2]
    declared = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    patterns = declared["package-data"]["*"]
    packaged = {path for pattern in patterns for path in (root / "brio_core").rglob(pattern)}
    beside = {
        path
        for path in (root / "brio_core").rglob("*.*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert beside == packaged
