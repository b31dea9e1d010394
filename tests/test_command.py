"""The command ``brio``: help at once, one sentence where something is missing."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import brio_core
import brio_core.__main__ as brio
from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[1]
LIGHT = {"numpy", "torch", "pandas", "yaml", "h5py", "snakemake"}


def test_help_imports_nothing_heavy():
    """So it comes in a tenth of a second; a clock would make this test depend on the machine."""
    program = "import sys, brio_core.__main__ as brio; brio.parser(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert not LIGHT & set(done.stdout.split())


def test_the_package_is_light_and_knows_its_names():
    assert "SiteClassifier" in brio_core.__all__
    with pytest.raises(AttributeError, match="module 'brio_core' has no attribute 'nothing'"):
        _ = brio_core.nothing


def test_the_package_installs_it():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, name = scripts["brio"].split(":")
    assert module == brio.__name__ and callable(getattr(brio, name))


def test_run_becomes_snakemake_of_the_clone(monkeypatch):
    called = []
    monkeypatch.setattr(os, "execve", lambda *words: called.append(words))
    monkeypatch.setattr(sys, "argv", ["brio", "run", "-n", "--configfile", "mine.yaml"])
    brio.main()
    ((program, words, environment),) = called
    assert program == sys.executable and words[1:3] == ["-P", "-c"]
    said = subprocess.run([*words[:4], "--help"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("usage: brio run ")
    assert words[4:] == [
        "--snakefile", str(ROOT / "Snakefile"), "-n", "--configfile", "mine.yaml",
    ]  # fmt: skip
    assert environment["PATH"].startswith(str(Path(sys.executable).parent))


def test_without_a_clone(monkeypatch):
    monkeypatch.setattr(brio, "IN_CLONE", False)
    monkeypatch.setattr(sys, "argv", ["brio", "run"])
    with pytest.raises(BrioError, match="'brio run' needs a clone of the repository"):
        brio.main()


def test_without_snakemake(monkeypatch):
    monkeypatch.setattr(brio, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["brio", "run"])
    with pytest.raises(BrioError, match="needs Snakemake, which this environment lacks"):
        brio.main()


@pytest.mark.parametrize("count", ["-1", "few"])
def test_a_number_of_reestimates_is_checked_when_it_is_read(count, capsys):
    with pytest.raises(SystemExit):
        brio.parser().parse_args(["predict", "b", "s", "--out", "o", f"--reestimates={count}"])
    assert "argument --reestimates: " in capsys.readouterr().err
