"""The whole way, for real: raw images of the demo cohort to tables, figures and pages."""

import csv
import json
import os
import sys
from pathlib import Path

import pytest

from tests.forked import quick_python, run_snakemake
from tests.reporting.page import contradictions, printed_numbers

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def snakemake(folder, *arguments):
    words = ["--snakefile", ROOT / "Snakefile", "--directory", folder, *arguments]
    path = os.pathsep.join([quick_python(), str(Path(sys.executable).parent), os.environ["PATH"]])
    return run_snakemake(words, ROOT, os.environ | {"PATH": path})


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """A folder in which the demo has run."""
    folder = tmp_path_factory.mktemp("demo")
    done = snakemake(folder, "--cores", 2)
    assert done.returncode == 0, done.stdout[-3000:]
    return folder


def rows(path):
    with open(path, newline="", encoding="utf-8") as stream:
        return {row["variant"]: row for row in csv.DictReader(stream)}


def test_demo_ends_in_a_page_and_a_report(demo):
    page = (demo / "results" / "index.html").read_text(encoding="utf-8")
    assert "Does it work on a site it has never seen?" in page
    assert contradictions(page) == [], "one number for each cohort, protocol, variant and measure"
    assert len(printed_numbers(page)) > 100
    assert len(page.encode()) < 3e6
    assert (demo / "results" / "report.html").stat().st_size > 1e6
    for name in ("main-loso", "main-id", "ablations", "sensitivity", "scan-length", "roi-profiles"):
        for suffix in ("csv", "md", "tex"):
            assert (demo / "results" / "tables" / f"{name}.{suffix}").stat().st_size > 0
        for suffix in ("png", "pdf", "svg"):
            assert (demo / "results" / "figures" / f"{name}.{suffix}").stat().st_size > 0
    for name in ("method", "diagnostics-demo", "propositions", "training"):
        assert (demo / "results" / "figures" / f"{name}.png").stat().st_size > 0


def test_diagnostics_of_trained_models_keep_their_promises(demo):
    folder = demo / "results" / "diagnostics" / "demo" / "loso" / "brio" / "seed-0"
    with open(folder / "contrasts.csv", newline="") as stream:
        contrasts = list(csv.DictReader(stream))
    for row in contrasts:
        before, after = float(row["contrast"]), float(row["reestimated"])
        assert abs(after - before) <= float(row["bound"]) * (1 + 1e-6)
        assert row["condition"] == "0" or before * after > 0, row
    with open(folder / "penalties.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            assert float(row["penalty"]) <= float(row["relevance_penalty"]) * (1 + 1e-6)
    with open(folder / "folds.csv", newline="") as stream:
        tested = {(r["variant"], r["fold"]): r["test_auc"] for r in csv.DictReader(stream)}
    with open(folder / "retention.csv", newline="") as stream:
        for row in csv.DictReader(stream):
            if row["kept"] == row["factors"]:
                assert row["test_auc"] == tested[row["variant"], row["fold"]], "all factors kept"


def test_every_method_stands_in_both_tables(demo):
    methods = {path.stem for path in (ROOT / "config" / "methods").glob("*.yaml")}
    assert len(methods) == 23
    for protocol in ("loso", "id"):
        with open(demo / "results" / "tables" / f"main-{protocol}.csv", newline="") as stream:
            found = {row["variant"]: row["status"] for row in csv.DictReader(stream)}
        assert found == dict.fromkeys(methods, "run"), found


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
        assert meta["code"] and meta["hyperparameters"] and meta["versions"]["torch"]
        checksums.add((meta["protocol"], meta["split_checksum"]))
    assert len(checksums) == 2
    assert (demo / "results" / "run_config.yaml").stat().st_size > 0


def test_second_run_has_nothing_to_do(demo):
    done = snakemake(demo, "--cores", 2)
    assert done.returncode == 0
    assert "Nothing to be done" in done.stdout


def test_permuted_labels_fall_to_chance(demo):
    few = "methods=[gcn,brio,linear-correlation]"
    done = snakemake(demo, "permuted", "--cores", 2, "--config", few)
    assert done.returncode == 0, done.stdout[-3000:]
    with open(demo / "results" / "tables" / "permuted.csv", newline="") as stream:
        found = list(csv.DictReader(stream))
    assert found
    for row in found:
        # Five permutations of a hundred subjects: chance itself wanders by a few points.
        assert 0.38 < float(row["auc_mean"]) < 0.62, row
