"""REST-meta-MDD's layout: one .mat of 1,833 columns per subject and a workbook of two sheets."""

import numpy as np
import pandas as pd
import pytest
from scipy.io import savemat

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.readers.dpabi import ATLASES, PHENOTYPES
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.scan import Unusable
from brio_core.cohorts.stores import read_series
from brio_core.cohorts.tables import read_table
from brio_core.system.errors import BrioError

FOLDER = "rest-meta-mdd/Results/ROISignals_FunImgARCWF"


def _signals(frames=70, seed=0):
    """Column c (counted from 1) has the mean c, so that atlases can be told apart."""
    draw = np.random.default_rng(seed).normal(size=(frames, 1833)) / 100
    return draw - draw.mean(0) + np.arange(1, 1834)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Five sites with ten subjects; one scan is missing, one has no row, some phenotypes lack."""
    data = tmp_path_factory.mktemp("mdd")
    scans = data / FOLDER
    scans.mkdir(parents=True)
    sheets = {"MDD": [], "Controls": []}
    for site in range(1, 6):
        for number in range(1, 6):
            for group, sheet in ((1, "MDD"), (2, "Controls")):
                subject = f"S{site}-{group}-{number:04d}"
                row = {"ID": subject, "Sex": number % 2 + 1, "Age": 20 + number}
                sheets[sheet].append(row | {"Education (years)": 9})
                seed = 100 * site + 10 * group + number
                savemat(scans / f"ROISignals_{subject}.mat", {"ROISignals": _signals(seed=seed)})
    sheets["MDD"][0] |= {"Age": "[]", "HAMD": 20}
    sheets["Controls"][0] |= {"Age": -9999, "Sex": None}
    sheets["Controls"].append({"ID": "S3-1-0099", "Sex": 1, "Age": 30})
    savemat(scans / "ROISignals_S3-1-0099.mat", {"ROISignals": _signals(seed=7)})
    savemat(scans / "ROISignals_S2-2-0088.mat", {"ROISignals": _signals(seed=8)})
    (scans / "ROISignals_S4-1-0003.mat").unlink()
    savemat(scans / "ROISignals_S5-2-0005.mat", {"ROISignals": _signals()[:, :1568]})
    (scans / "ROISignals_S5-1-0005.mat").write_bytes(b"MATLAB 5.0 MAT-file, cut")
    with pd.ExcelWriter(data / "rest-meta-mdd" / PHENOTYPES) as book:
        for name, rows in sheets.items():
            pd.DataFrame(rows).to_excel(book, sheet_name=name, index=False)
    return data


@pytest.fixture
def dataset(load_dataset):
    return load_dataset("rest-meta-mdd-aal116")


def test_candidates(release, dataset):
    found = {c["subject"]: c for c in find_candidates(open_reader(dataset, release))}
    assert len(found) == 52
    patient, control = found["S1-1-0002"], found["S1-2-0002"]
    assert (patient["site"], patient["label"], patient["age"], patient["sex"]) == (
        "S1", "1", "22", "1",
    )  # fmt: skip
    assert (control["label"], control["source"]) == ("0", f"{FOLDER}/ROISignals_S1-2-0002.mat")
    assert found["S1-1-0001"]["age"] == found["S1-2-0001"]["age"] == "n/a"
    assert found["S1-2-0001"]["sex"] == "n/a"
    reasons = {subject: c["excluded"] for subject, c in found.items() if c["excluded"]}
    assert reasons == {
        "S2-2-0088": f"missing phenotype: no row in {PHENOTYPES}",
        "S3-1-0099": "contradictory group: 1 by its ID, but in sheet Controls",
        "S4-1-0003": f"missing file: {FOLDER}/ROISignals_S4-1-0003.mat",
    }


@pytest.mark.parametrize(
    ("atlas", "first", "last"),
    [("aal116", 1, 116), ("ho112", 117, 228), ("cc200", 229, 428), ("dosenbach160", 1409, 1568),
     ("power264", 1570, 1833)],
)  # fmt: skip
def test_atlas_is_a_range_of_columns(release, dataset, atlas, first, last):
    dataset["source"]["atlas"] = atlas
    source = open_reader(dataset, release)
    scan = source.read(release / FOLDER / "ROISignals_S1-1-0002.mat", None)
    assert scan.series.mean(0).round().tolist() == list(range(first, last + 1))
    assert len(ATLASES) == 5


def test_from_files_to_series(release, dataset, run_cohort, tmp_path):
    result = run_cohort(dataset, release, tmp_path)
    assert result.returncode == 0, result.stderr
    table = read_table(tmp_path / "inclusion.tsv").set_index("subject")
    assert (table["kept"] == "yes").sum() == 47
    assert table.loc["S5-2-0005", "reason"].endswith("has 1568 columns instead of 1833")
    assert table.loc["S5-1-0005", "reason"].startswith("unreadable file: ROISignals_S5-1-0005.mat")
    rois = read_series(tmp_path / "series.h5").rois
    assert rois.hemispheres[:3] == ("L", "R", "L") and rois.hemispheres[107:109] == ("R", "n/a")
    assert len(rois.hemispheres) == len(rois.names) == 116


def test_other_variable_and_missing_files_are_named(release, dataset, tmp_path):
    source = open_reader(dataset, release)
    savemat(tmp_path / "x.mat", {"Signals": np.zeros((3, 3))})
    with pytest.raises(Unusable, match=r"x\.mat \(it holds no 'ROISignals', only nothing\)"):
        source.read(tmp_path / "x.mat", None)
    dataset["source"]["signals"] = "FunImgARglobalCWF"
    with pytest.raises(BrioError, match=r"ROISignals_FunImgARglobalCWF does not exist; Apply at"):
        find_candidates(open_reader(dataset, release))
    book = tmp_path / "rest-meta-mdd" / PHENOTYPES
    book.parent.mkdir()
    pd.DataFrame({"ID": ["S1-1-0001"]}).to_excel(book, sheet_name="MDD")
    with pytest.raises(BrioError, match=r"V4\.xlsx has no sheet 'Controls', only MDD"):
        find_candidates(open_reader(dataset, tmp_path))
    book.write_text("no workbook")
    with pytest.raises(BrioError, match=r"V4\.xlsx cannot be read as \.xlsx"):
        find_candidates(open_reader(dataset, tmp_path))


def test_hemispheres_need_the_right_number(release, dataset):
    dataset["rois"]["expected"] = 112
    with pytest.raises(BrioError, match=r"'aal116', an atlas of 116 regions, but .* is 112"):
        find_candidates(open_reader(dataset, release))
