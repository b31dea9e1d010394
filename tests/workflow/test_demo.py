"""The whole way, for real: raw images of the demo cohort to tables, figures and pages."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def snakemake(folder, *arguments):
    command = [sys.executable, "-m", "snakemake", "--snakefile", ROOT / "Snakefile"]
    command += ["--directory", folder, *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        list(map(str, command)), env=os.environ | {"PATH": path}, capture_output=True, text=True
    )


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A folder in which the demo has run."""
    folder = tmp_path_factory.mktemp("demo")
    done = snakemake(folder, "demo", "--cores", 2)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder


def rows(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return {row["variant"]: row for row in csv.DictReader(stream)}


def test_demo_ends_in_a_page_and_a_report(demo):
    page = (demo / "results" / "index.html").read_text(encoding="utf-8")
    assert "Does it work on a site it has never seen?" in page
    assert (demo / "results" / "report.html").stat().st_size > 1e6
    for name in ("main-loso", "main-id"):
        for suffix in ("csv", "md", "tex"):
            assert (demo / "results" / "tables" / f"{name}.{suffix}").stat().st_size > 0
        for suffix in ("png", "pdf"):
            assert (demo / "results" / "figures" / f"{name}.{suffix}").stat().st_size > 0


def test_planted_effect_is_found_on_unseen_sites(demo):
    table = rows(demo / "results" / "summaries" / "main" / "demo" / "loso.csv")
    for variant in ("brio", "linear-correlation"):
        assert float(table[variant]["pooled_auc_low"]) > 0.55, table[variant]


def test_results_say_what_made_them(demo):
    runs = list((demo / "results" / "runs").rglob("meta.json"))
    assert runs
    checksums = set()
    for path in runs:
        meta = json.loads(path.read_text())
        assert meta["code"] and meta["settings"] and meta["versions"]["torch"]
        checksums.add((meta["protocol"], meta["split_checksum"]))
    assert len(checksums) == 2
    assert (demo / "results" / "run_config.yaml").stat().st_size > 0


def test_second_run_has_nothing_to_do(demo):
    done = snakemake(demo, "demo", "--cores", 2)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout + done.stderr


def test_permuted_labels_fall_to_chance(demo):
    done = snakemake(demo, "permuted", "--cores", 2)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    with open(demo / "results" / "tables" / "permuted.csv", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert found
    for row in found:
        # Five permutations of a hundred subjects: chance itself wanders by a few points.
        assert 0.38 < float(row["auc_mean"]) < 0.62, row
