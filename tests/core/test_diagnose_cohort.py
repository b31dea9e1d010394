"""The job that diagnoses all cells of a cohort: interruption, and what it leaves behind."""

import json
import shutil

import pytest
import torch

from brio_core.diagnostics import cohort

SETTINGS = {"reestimates": 2, "epsilon": 0.1, "retention_draws": 2, "scan_fractions": [0.5]}


@pytest.fixture
def cells(trained_demo_cell, tmp_path):
    """Two cells, and a function that diagnoses them into a folder."""
    folder, files = trained_demo_cell
    runs = []
    for seed in (0, 1):
        runs.append(shutil.copytree(folder, tmp_path / f"seed-{seed}"))
        meta = json.loads((runs[-1] / "meta.json").read_text())
        (runs[-1] / "meta.json").write_text(json.dumps(meta | {"seed": seed}))
    paths = [files[files.index(name) + 1] for name in ("--cohort-dir", "--split", "--block-length")]

    def diagnose(out, settings=SETTINGS):
        cohort.diagnose_cohort(*paths, runs, settings, torch.device("cpu"), out)

    return runs, diagnose


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def killed(cells, tmp_path, monkeypatch, capsys):
    """Results without disturbance, and a folder whose job died in its second cell."""
    _, diagnose = cells
    diagnose(tmp_path / "undisturbed")
    real, asked = cohort.diagnose_fold, []

    def dies(data, settings):
        asked.append(data.problem.seed)
        if asked[-1] == 1:
            raise KeyboardInterrupt
        return real(data, settings)

    monkeypatch.setattr(cohort, "diagnose_fold", dies)
    with pytest.raises(KeyboardInterrupt):
        diagnose(tmp_path / "loso")
    assert not (tmp_path / "loso").exists(), "nothing is half-written"
    asked.clear()
    monkeypatch.setattr(cohort, "diagnose_fold", lambda *words: asked.append(
        words[0].problem.seed) or real(*words))  # fmt: skip
    return tmp_path / "loso", asked


def test_a_killed_job_goes_on_and_ends_with_the_same_bytes(cells, killed, tmp_path):
    out, asked = killed
    cells[1](out)
    assert set(asked) == {1}, "the first cell was kept"
    assert contents(out) == contents(tmp_path / "undisturbed")
    assert not list(tmp_path.glob(".*.unfinished"))


def test_what_was_kept_and_broke_is_made_anew(cells, killed, tmp_path):
    out, asked = killed
    (kept,) = (tmp_path / ".loso.unfinished").iterdir()
    kept.write_text(kept.read_text()[:-40])
    cells[1](out)
    assert set(asked) == {0, 1}
    assert contents(out) == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("change", ["settings", "cell"])
def test_what_was_kept_belongs_to_its_settings_and_cell(cells, killed, change):
    out, asked = killed
    runs, diagnose = cells
    meta = json.loads((runs[0] / "meta.json").read_text())
    if change == "cell":
        (runs[0] / "meta.json").write_text(json.dumps(meta | {"started": "later"}))
    diagnose(out, SETTINGS | ({"epsilon": 0.2} if change == "settings" else {}))
    assert set(asked) == {0, 1}
