"""ABIDE of the Preprocessed Connectomes Project: reading it, and downloading it."""

import os
import shutil
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.readers.series import series_scan
from brio_core.cohorts.stores import read_fc, read_series
from brio_core.cohorts.tables import read_table

SITES = ("CMU", "KKI", "NYU", "PITT", "SBL")


def _write_scan(path, values):
    header = "\t".join(f"#{index + 1}" for index in range(values.shape[1]))
    np.savetxt(path, values, fmt="%.6f", delimiter="\t", header=header, comments="")


@pytest.fixture
def fake_abide(tmp_path):
    """Five sites with eight subjects; the last row has no file, one scan is constant, one twice."""
    root = tmp_path / "data" / "abide" / "ABIDE_pcp"
    scans = root / "cpac" / "filt_global"
    scans.mkdir(parents=True)
    quality = ("qc_rater_1", "qc_anat_rater_2", "qc_func_rater_2", "qc_anat_rater_3",
               "qc_func_rater_3")  # fmt: skip
    columns = ("SUB_ID", "SITE_ID", "FILE_ID", "DX_GROUP", "AGE_AT_SCAN", "SEX", "func_mean_fd")
    lines = [",".join(("", *columns, *quality))]
    draw = np.random.default_rng(0)
    for number in range(40):
        site = SITES[number // 8]
        file_id = f"{site.title()}_{50000 + number:07d}"
        rater = "fail" if number == 9 else "OK"
        cells = (number, 50000 + number, site, file_id, number % 2 + 1, "12.5", 1, 0.05)
        lines.append(",".join(map(str, (*cells, rater, *["OK"] * 4))))
        _write_scan(scans / f"{file_id}_rois_cc200.1D", draw.normal(size=(70, 5)))
    lines.append("40,50040,CMU,no_filename,1,-9999,1,,OK,OK,OK,OK,OK")
    (root / "Phenotypic_V1_0b_preprocessed1.csv").write_text("\n".join(lines) + "\n")
    shutil.copy(scans / "Kki_0050010_rois_cc200.1D", scans / "Kki_0050012_rois_cc200.1D")
    zeros = np.zeros((70, 5))
    zeros[:, 0] = draw.normal(size=70)
    _write_scan(scans / "Nyu_0050016_rois_cc200.1D", zeros)
    return tmp_path / "data"


@pytest.fixture
def dataset(load_dataset):
    dataset = load_dataset("abide-cc200")
    inclusion = dataset["inclusion"] | {"min_subjects_per_class": 3}
    return dataset | {"rois": {"expected": 5}, "inclusion": inclusion}


def test_candidates(fake_abide, dataset):
    candidates = find_candidates(open_reader(dataset, fake_abide))
    assert len(candidates) == 41
    first, last = candidates[0], candidates[-1]
    assert (first["subject"], first["site"], first["label"]) == ("Cmu_0050000", "CMU", "1")
    assert (first["age"], first["sex"], first["mean_fd"]) == ("12.5", "1", "0.05")
    assert (first["tr"], candidates[8]["tr"]) == ("n/a", "2.5")
    assert last["subject"] == "0050040"
    assert last["excluded"] == "no scan in the release: FILE_ID is no_filename"
    assert last["age"] == "n/a"


def test_quality_control_is_a_reason(fake_abide, dataset):
    dataset["source"]["quality_checked"] = True
    candidates = find_candidates(open_reader(dataset, fake_abide))
    failed = [c["subject"] for c in candidates if "failed quality control" in c["excluded"]]
    assert failed == ["Kki_0050009"]


def test_from_files_to_series(fake_abide, dataset, run_cohort, tmp_path):
    result = run_cohort(dataset, fake_abide, tmp_path / "out")
    assert result.returncode == 0, result.stderr
    table = read_table(tmp_path / "out" / "inclusion.tsv").set_index("subject")
    reasons = table[table["kept"] == "no"]["reason"].to_dict()
    assert reasons == {
        "0050040": "no scan in the release: FILE_ID is no_filename",
        "Kki_0050012": "duplicate scan: series correlate 1.00 at lag 0 with Kki_0050010 "
        "(label 1, mean FD 0.05); own label 1, mean FD 0.05",
        "Nyu_0050016": "too many constant ROIs: 4 of 5, at most 2.5",
    }
    assert read_series(tmp_path / "out" / "series.h5").rois.names == tuple("12345")


def test_series_equal_those_of_nilearns_fetcher_without_network(fake_abide, dataset, tmp_path):
    """The fetcher runs in a process whose sockets are closed, so it cannot have asked for more."""
    program = (
        "import socket, sys, numpy\n"
        "def refuse(*_, **__): raise OSError('no network')\n"
        "socket.socket.connect = refuse\n"
        "from nilearn.datasets import fetch_abide_pcp\n"
        "found = fetch_abide_pcp(data_dir=sys.argv[1], pipeline='cpac', band_pass_filtering=True,"
        " global_signal_regression=True, derivatives=['rois_cc200'], quality_checked=False,"
        " verbose=0)\n"
        "names = found.phenotypic['FILE_ID'].tolist()\n"
        "numpy.savez(sys.argv[2], **dict(zip(names, found.rois_cc200)))\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, fake_abide / "abide", tmp_path / "f"]
    subprocess.run(command, check=True)
    source = open_reader(dataset, fake_abide)
    ours = [c for c in find_candidates(source) if not c["excluded"]]
    with np.load(tmp_path / "f.npz") as theirs:
        assert set(theirs.files) == {c["subject"] for c in ours}
        for candidate in ours[:16]:
            series = source.read(fake_abide / candidate["source"], None).series
            np.testing.assert_array_equal(series, theirs[candidate["subject"]].astype(np.float32))


@pytest.mark.cohort
def test_original_files():
    """Ten original files of ABIDE; BRIO_TEST_DATA names a folder with pcp_sample/ in it."""
    if "BRIO_TEST_DATA" not in os.environ:
        pytest.skip("BRIO_TEST_DATA does not name a folder with original PCP files")
    folder = Path(os.environ["BRIO_TEST_DATA"]) / "pcp_sample"
    scans = {path.name.split("_rois")[0]: series_scan(path) for path in folder.glob("*.1D")}
    assert len(scans) == 10
    assert all(scan.series.shape[1] == 200 for scan in scans.values())
    assert all(scan.names == tuple(map(str, range(1, 201))) for scan in scans.values())
    assert len(scans["Caltech_0051478"].dead) == 118
    first, second = scans["UM_1_0050279"], scans["UM_1_0050286"]
    assert first.series.tobytes() == second.series.tobytes()


@pytest.fixture(scope="module")
def real_cohort(tmp_path_factory):
    """All 1,035 scans of ABIDE in the project's layout, from the compact file of the test data."""
    if "BRIO_TEST_DATA" not in os.environ:
        pytest.skip("BRIO_TEST_DATA does not name a folder with the cohort")
    folder = Path(os.environ["BRIO_TEST_DATA"])
    root = tmp_path_factory.mktemp("real") / "abide" / "ABIDE_pcp"
    scans = root / "cpac" / "filt_global"
    scans.mkdir(parents=True)
    shutil.copy(folder / "Phenotypic_V1_0b_preprocessed1.csv", root)
    with np.load(folder / "abide_cc200_compact.npz") as stored:
        bold = np.cumsum(stored["bold_delta"], axis=0, dtype=np.int32) * float(stored["step"])
        cuts, subjects = stored["offsets"], stored["subject"]
    series = {str(name): bold[cuts[i] : cuts[i + 1]] for i, name in enumerate(subjects)}
    for name, values in series.items():
        _write_scan(scans / f"{name}_rois_cc200.1D", values)
    return root.parents[1], series


@pytest.mark.cohort
@pytest.mark.slow
def test_whole_cohort_from_files_to_connectivity(
    real_cohort, load_dataset, run_cohort, run_script, tmp_path
):
    """Every row is accounted for, and every matrix is what numpy makes of the scan."""
    data_dir, series = real_cohort
    result = run_cohort(load_dataset("abide-cc200"), data_dir, tmp_path)
    assert result.returncode == 0, result.stderr
    arguments = ("--series", tmp_path / "series.h5", "--out", tmp_path / "fc.h5")
    assert run_script("connect", *arguments).returncode == 0
    table = read_table(tmp_path / "inclusion.tsv")
    assert len(table) == 1112 and (table["kept"] == "yes").sum() == 1031
    reasons = table[table["kept"] == "no"].set_index("subject")["reason"]
    kinds = reasons.str.split(":").str[0].value_counts()
    assert kinds.to_dict() == {
        "no scan in the release": 77, "duplicate scan": 1, "too many constant ROIs": 1,
        "duplicate scan with opposite labels": 2,
    }  # fmt: skip
    assert "correlate 1.00 at lag 0 with UM_1_0050279 (label 1," in reasons["UM_1_0050286"]
    # The same motion to eight digits, and opposite labels.
    assert reasons["Yale_0050578"].endswith(
        "correlate 0.94 at lag 0 with Yale_0050602 (label 1, mean FD 0.2073431776); own label 0, "
        "mean FD 0.2073431776"
    )
    assert reasons["Caltech_0051478"].startswith("too many constant ROIs: 118 of 200")
    # Of the 1,035 scans 46 have a region without signal; one of these was excluded above.
    kept = table[table["kept"] == "yes"]
    assert (kept["constant_rois"] != "0").sum() == 45
    subjects, fc = read_fc(tmp_path / "fc.h5")
    assert len(subjects) == 1031 and np.isfinite(fc).all()
    for subject, matrix in zip(subjects, fc):
        values = series[subject]
        varies = np.ptp(values, axis=0) > 0
        expected = np.arctanh(np.corrcoef(values[:, varies].T) - np.eye(varies.sum()))
        np.testing.assert_allclose(matrix[np.ix_(varies, varies)], expected, atol=1e-5)
        assert not matrix[~varies].any() and not matrix[:, ~varies].any()


NAME = "Phenotypic_V1_0b_preprocessed1.csv"
SUBJECTS = [f"Site_{50000 + number:07d}" for number in range(6)]


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder; ``server.failures`` says how often a path fails before it comes."""

    def do_GET(self):
        name = self.path.split("/")[-1]
        self.server.asked.append(name)
        if self.server.failures.get(name, 0) > 0:
            self.server.failures[name] -= 1
            self.send_error(503)
            return
        super().do_GET()

    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    files = tmp_path / "server"
    scans = files / "Outputs" / "cpac" / "filt_global" / "rois_cc200"
    scans.mkdir(parents=True)
    lines = [",SUB_ID,SITE_ID,FILE_ID,DX_GROUP,AGE_AT_SCAN,SEX,func_mean_fd"]
    for number, subject in enumerate(SUBJECTS):
        lines.append(f"{number},{50000 + number},SITE,{subject},{number % 2 + 1},10,1,0.1")
        values = np.random.default_rng(number).normal(size=(70, 5))
        np.savetxt(scans / f"{subject}_rois_cc200.1D", values, delimiter="\t")
    lines.append("6,50006,SITE,no_filename,1,10,1,0.1")
    (files / NAME).write_text("\n".join(lines) + "\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(files)))
    server.asked, server.failures = [], {}
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


@pytest.fixture
def fetch(server, tmp_path, load_dataset, run_script):
    import yaml

    path = tmp_path / "abide-cc200.yaml"
    path.write_text(yaml.safe_dump(load_dataset("abide-cc200")))
    url = f"http://127.0.0.1:{server.server_address[1]}"

    def run(*options):
        common = ("--data-dir", tmp_path / "data", "--url", url, "--wait", 0.01, "--attempts", 3)
        return run_script("brio", "fetch", path, *common, *options)

    return run


def _scans(tmp_path):
    return sorted(path.name for path in (tmp_path / "data").rglob("*.1D"))


def test_retries_resumes_and_then_needs_no_network(fetch, server, tmp_path, load_dataset):
    lost = f"{SUBJECTS[4]}_rois_cc200.1D"
    server.failures = {NAME: 1, f"{SUBJECTS[1]}_rois_cc200.1D": 2, lost: 100}
    result = fetch()
    assert result.returncode == 1
    assert "1 scan(s) of cohort abide-cc200 did not come" in result.stderr
    assert f"{lost} could not be downloaded in 3 attempts" in result.stderr
    assert "the same command fetches the others" in result.stderr
    assert len(_scans(tmp_path)) == 5
    server.failures, server.asked = {}, []
    result = fetch()
    assert result.returncode == 0, result.stderr
    assert "1 scans downloaded, 5 were there" in result.stdout
    assert server.asked == [lost]
    server.asked = []
    assert "0 scans downloaded, 6 were there" in fetch().stdout
    assert server.asked == []
    dataset = load_dataset("abide-cc200")
    scan = open_reader(dataset, tmp_path / "data").read(
        next((tmp_path / "data").rglob("*.1D")), None
    )
    assert scan.series.shape == (70, 5)


def test_gives_up_when_nothing_comes(fetch, server, tmp_path):
    server.failures = {f"{subject}_rois_cc200.1D": 100 for subject in SUBJECTS}
    result = fetch("--attempts", 1)
    assert result.returncode == 1 and "3 scan(s)" in result.stderr
    assert _scans(tmp_path) == []
    server.failures = {NAME: 100}
    (tmp_path / "data" / "abide" / "ABIDE_pcp" / NAME).unlink()
    result = fetch("--attempts", 2)
    assert "the phenotype table could not be downloaded in 2 attempts" in result.stderr


def test_page_of_an_error_is_not_a_scan(fetch, server, tmp_path):
    scans = tmp_path / "server/Outputs/cpac/filt_global/rois_cc200"
    (scans / f"{SUBJECTS[0]}_rois_cc200.1D").write_text("<html>busy</html>")
    result = fetch()
    assert result.returncode == 1 and "1 scan(s)" in result.stderr
    assert f"{SUBJECTS[0]}_rois_cc200.1D" not in _scans(tmp_path)


def test_other_cohorts_say_where_to_apply(run_script):
    from pathlib import Path

    path = Path(__file__).parents[2] / "config" / "datasets" / "rest-meta-mdd-aal116.yaml"
    result = run_script("brio", "fetch", path)
    assert result.returncode == 1 and "cannot be downloaded by a program; Apply at" in result.stderr
