"""What tutorials tell a reader to type works, from an empty folder and in the order of the page."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from test_docs import cells, prose, sentences, too_long

from tests.forked import quick_python

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
# What a plan and a method need of a clone.
CLONE = ("Snakefile", "brio_core", "config", "profiles", "scripts", "workflow")


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and text of the blocks that are executed."""
    return re.findall(r"^```(bash|python)\n(.*?)^```", page.read_text(), re.S | re.M)


def script(page: Path) -> str:
    """One program for bash; what follows Python in Python goes on with its names."""
    parts, python = [], ""
    for language, text in [*blocks(page), ("bash", "")]:
        if language == "python":
            python += text
        elif python:
            parts.append(f"python - <<'END_OF_PYTHON'\n{python}END_OF_PYTHON\n{text}")
            python = ""
        else:
            parts.append(text)
    return "set -eu\n" + "".join(parts)


@pytest.fixture
def execute(tmp_path):
    """Execute pages in an empty folder, with ``brio`` of a clone; returns what they printed."""

    def run(*names: str, clone: Path = ROOT) -> str:
        folder = tmp_path / "empty"
        folder.mkdir()
        command = tmp_path / "bin" / "brio"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m brio_core "$@"\n')
        command.chmod(0o755)
        path = f"{command.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        if clone == ROOT:
            path = f"{quick_python()}:{path}"
        variables = {"PATH": path, "PYTHONPATH": str(clone), "BRIO": str(clone)}
        typed = "".join(script(ROOT / "docs" / "tutorials" / name) for name in names)
        done = subprocess.run(
            ["bash"], input=typed, cwd=folder, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            env=os.environ | variables | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-4000:]
        return done.stdout

    return run


@pytest.mark.slow
def test_own_series_and_a_new_site(execute, tmp_path):
    said = execute("own-series.md", "a-new-site.md")
    study = tmp_path / "empty" / "study"
    assert "cohort mine: 84 of 84 candidate subjects kept" in said
    table = (study / "results/mine/tables/main-loso.md").read_text()
    assert table in said and "Linear (logarithm)" in table
    shown = (ROOT / "docs/tutorials/own-series.md").read_text()
    assert (study / "config/datasets/mine.yaml").read_text() in shown
    assert len((study / "rowan/predictions.csv").read_text().splitlines()) == 15
    assert "AUC" in said.splitlines()[-1]


@pytest.mark.slow
def test_in_python(execute):
    said = execute("in-python.md")
    assert "14 scans of Rowan" in said and "probabilities of the classes 0 1" in said
    assert "98 scans" in said and said.count("\nall ") == 2 and "accuracy" in said


@pytest.mark.slow
def test_a_method(execute, tmp_path):
    clone = tmp_path / "clone"
    for name in CLONE:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        clone.mkdir(exist_ok=True)
        copy(ROOT / name, clone / name)
    page = (ROOT / "docs/adding-a-method.md").read_text()
    for language, path in (
        ("python", "brio_core/methods/mlp.py"),
        ("yaml", "config/methods/mlp.yaml"),
    ):
        (clone / path).write_text(re.search(rf"```{language}\n(.*?)```", page, re.S)[1])
    said = execute("a-method.md", clone=clone)
    assert "mlp {'Alder'" in said and "linear-logarithm {'Alder'" in said
    assert "training runs   4 to train" in said


@pytest.mark.slow
def test_bids_on_slurm(execute):
    said = execute("bids-on-slurm.md")
    assert "source: {kind: bids, folder: mine, derivatives: derivatives/prep" in said
    assert "rois: {expected: 24}" in said and "training runs" in said


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_pages_are_plain(page):
    text = prose(str(page.relative_to(ROOT)))
    found = too_long(sentences(text), 25) + too_long(cells(text), 15)
    assert not found, "shorten\n" + "\n".join(found)
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link
    listed = (page.parent / "README.md").read_text()
    assert page.name == "README.md" or f"]({page.name})" in listed
