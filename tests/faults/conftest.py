"""A lab in which everything has run once, copies of it, and Snakemake in them."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stages import EPOCHS, Stage, stages_of
from tiny import ROOT, Lab, cpu_seconds, make_lab

from tests.forked import Forked, run_snakemake


@pytest.fixture(autouse=True)
def _cost(record_property):
    before = cpu_seconds()
    yield
    record_property("cpu_seconds", cpu_seconds() - before)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Lab:
    """Never changed by a test."""
    lab = make_lab(tmp_path_factory.mktemp("finished") / "lab", **EPOCHS)
    # As a user has it: all programs are started.
    done = run_snakemake(lab.words("tiny", "--cores", "2"), ROOT, lab.environment())
    assert done.returncode == 0, done.stdout
    return lab


@pytest.fixture(scope="session")
def stages(finished) -> dict[str, Stage]:
    return stages_of(finished)


@pytest.fixture
def lab(finished, tmp_path) -> Lab:
    """A copy of the finished lab, with its modification times."""
    shutil.copytree(finished.folder, tmp_path / "lab", symlinks=True)
    return Lab(tmp_path / "lab")


@pytest.fixture(scope="session")
def start_snakemake() -> Callable[..., Forked]:
    """``start_snakemake(lab, ...)`` in a process group of its own, which a test may kill."""

    def start(lab: Lab, *words: object, log: Path) -> Forked:
        return Forked(["snakemake", *lab.words(*words)], ROOT, lab.environment(), log)

    return start
