"""The program that diagnoses a trained run."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch

from brio_core.evaluation.diagnostics import run as diagnostics
from brio_core.evaluation.scores import auc
from brio_core.training.data import RunFiles

SETTINGS = {"reestimates": 2, "epsilon": 0.1, "retention_draws": 2, "scan_fractions": [0.5]}


def test_diagnose_from_the_command_line(trained_demo_cell, run_script, tmp_path):
    folder, files = trained_demo_cell
    done = run_script(
        "diagnose", *files, "--run", folder, "--settings", json.dumps(SETTINGS),
        "--out-dir", tmp_path / "diagnostics",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    records = list(csv.DictReader((tmp_path / "diagnostics/folds.csv").open()))
    stored = list(csv.DictReader((folder / "predictions.csv").open()))
    assert {record["fold"] for record in records} == {row["fold"] for row in stored}
    assert all(float(record["site_discrepancy"]) > 0 for record in records)
    for record in records:
        rows = [r for r in stored if r["fold"] == record["fold"] and r["split"] == "test"]
        found = auc(np.array([int(r["label"]) for r in rows]), [float(r["logit"]) for r in rows])
        assert float(record["test_auc"]) == pytest.approx(found)
    meta = json.loads((tmp_path / "diagnostics/meta.json").read_text())
    assert (meta["variant"], meta["label"]) == ("linear-correlation", "Linear")
    assert meta["diagnostics"] == SETTINGS and meta["seconds"] > 0
    # The device is named as in the cell's own file.
    assert meta["device"] == json.loads((folder / "meta.json").read_text())["device"]
    rois = list(csv.DictReader((tmp_path / "diagnostics/rois.csv").open()))
    assert len(rois) == 24 and rois[0]["hemisphere"] == "L"


def test_a_cell_of_other_folds_is_named_and_nothing_is_written(
    trained_demo_cell, run_script, tmp_path
):
    folder, files = trained_demo_cell
    run = shutil.copytree(folder, tmp_path / "run")
    meta = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps(meta | {"split_checksum": "other"}))
    done = run_script(
        "diagnose", *files, "--run", run, "--settings", json.dumps(SETTINGS),
        "--out-dir", tmp_path / "diagnostics",
    )  # fmt: skip
    assert done.returncode == 1
    assert f"error: {run} was trained on other folds than" in done.stderr
    assert not (tmp_path / "diagnostics").exists()


def test_a_job_that_is_killed_leaves_nothing(trained_demo_cell, tmp_path, monkeypatch):
    folder, files = trained_demo_cell
    paths = [files[files.index(name) + 1] for name in ("--cohort-dir", "--split", "--block-length")]
    real, folds = diagnostics.diagnose_fold, []

    def dies(trained, options):
        folds.append(trained.fold.name)
        if len(folds) == 2:
            raise KeyboardInterrupt
        return real(trained, options)

    monkeypatch.setattr(diagnostics, "diagnose_fold", dies)
    with pytest.raises(KeyboardInterrupt):
        diagnostics.diagnose_run(
            RunFiles(*paths), folder, SETTINGS, tmp_path / "out", torch.device("cpu")
        )
    assert not (tmp_path / "out").exists()
