"""Downloading from a server of our own that fails now and then."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from brio_core.cohorts.readers.reader import open_reader

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
        return run_script("fetch_cohort", path, *common, *options)

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
    result = run_script("fetch_cohort", path)
    assert result.returncode == 1 and "cannot be downloaded by a program; Apply at" in result.stderr
