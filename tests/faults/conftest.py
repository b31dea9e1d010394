"""A lab in which everything has run once, copies of it, and Snakemake in them."""

import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from stages import EPOCHS, Stage, stages_of
from tiny import ROOT, Lab, cpu_seconds, make_lab


@pytest.fixture(autouse=True)
def _cost(record_property):
    before = cpu_seconds()
    yield
    record_property("cpu_seconds", cpu_seconds() - before)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Lab:
    """Never changed by a test."""
    lab = make_lab(tmp_path_factory.mktemp("finished") / "lab", **EPOCHS)
    done = lab.snakemake("tiny", "--cores", "2")
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
def start_snakemake() -> Callable[..., subprocess.Popen]:
    """``start_snakemake(lab, ...)`` in a process group of its own, which a test may kill."""

    def start(lab: Lab, *words: object, log: Path) -> subprocess.Popen:
        with open(log, "a") as stream:
            return subprocess.Popen(
                lab.command(*words),
                cwd=ROOT,
                env=lab.environment(),
                start_new_session=True,
                stdout=stream,
                stderr=subprocess.STDOUT,
                # A background job of a shell would ignore Ctrl-C.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    return start
