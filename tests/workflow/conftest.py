"""A copy of the repository in which every job finishes at once."""

import os
import re
import shutil
import stat
import sys
from pathlib import Path

import pytest

from tests.forked import run_snakemake

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("Snakefile", "workflow", "config", "studies", "profiles", "envs", "scripts", "brio_core")

# Stands in for `python` in the shell commands of the rules: it writes the files that the program
# would write, as far as rules and report care.
STAND_IN = """#!{python} -SE
import json, os, pathlib, sys

words = [word for word in sys.argv[1:] if word != "-u"]
program, options, values = pathlib.Path(words[0]).stem, {{}}, []
for word in words[1:]:
    if word.startswith("--"):
        values = options.setdefault(word, [])
    else:
        values.append(word)
out = {{option: pathlib.Path(values[0]) for option, values in options.items() if values}}
if os.environ.get("FAIL") == program:
    sys.exit("error: asked to fail")
if program == "make_demo":
    files = [out["--out"] / "participants.tsv"]
elif program == "assemble":
    names = ("--participants", "--inclusion", "--regions", "--series", "--checksums")
    files = [out[name] for name in names]
elif program == "adopt":
    files = [out["--out-dir"] / name for name in ("predictions.csv", "meta.json")]
elif program == "remote":
    files = [pathlib.Path(words[2])]
elif program == "document":
    files = [out["--out-dir"] / pathlib.Path(options["--templates"][0]).name]
elif program == "diagnose":
    files = [pathlib.Path(folder) / "folds.csv" for folder in options["--out-dir"]]
elif program == "train":
    folders = list(map(pathlib.Path, options["--out-dir"]))
    names = ("predictions.csv", "history.csv", "models.pt", "meta.json")
    files = [folder / name for folder in folders for name in names]
elif "--out-prefix" in out:
    kinds = (".pdf", ".png", ".svg") if program == "figure" else (".csv", ".md", ".tex", ".json")
    files = [pathlib.Path(str(out["--out-prefix"]) + kind) for kind in kinds]
else:
    names = ("--out", "--sites", "--records", "--plain", "--bibtex")
    files = [out[name] for name in names if name in out]
for file in files:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a,b\\n1,2\\n" if program != "assemble" else os.environ.get("COHORT", "1"))
if program == "train":
    meta = json.loads(options["--params"][0])
    meta |= {{"cohort": out["--cohort-dir"].name, "seconds": 1800.0}}
    for folder in folders:
        (folder / "meta.json").write_text(json.dumps(meta))
"""


class Project:
    """The copy, and Snakemake in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "stand-in-bin"

    def snakemake(self, *words: str, cwd: Path | None = None, **variables: str):
        """Run Snakemake; the text of both streams is in ``stdout``."""
        environment = {**os.environ, "PATH": f"{self.bin}:{os.environ['PATH']}", **variables}
        return run_snakemake(words, cwd or self.folder, environment)

    def plan(self, *words: str) -> set[tuple[str, ...]]:
        """What a dry run would do: (rule, values of its wildcards in the order of the rule)."""
        done = self.snakemake(*words, "-n")
        assert done.returncode == 0, done.stdout
        jobs = set()
        for block in re.split(r"^\[.*\]$", done.stdout, flags=re.M)[1:]:
            rule = re.search(r"^(?:local)?rule ([\w-]+):", block, flags=re.M)
            wildcards = re.search(r"^    wildcards: (.*)$", block, flags=re.M)
            values = re.findall(r"=([^,]+)", wildcards[1]) if wildcards else []
            jobs.add((rule[1], *values))
        return jobs

    def edit(self, file: str, old: str, new: str) -> None:
        """Replace a text that stands in a file once."""
        path = self.folder / file
        text = path.read_text(encoding="utf-8")
        assert text.count(old) == 1, f"{file} has {old!r} {text.count(old)} times"
        path.write_text(text.replace(old, new), encoding="utf-8")

    def append(self, file: str, text: str) -> None:
        """Add lines to a file."""
        with open(self.folder / file, "a", encoding="utf-8") as stream:
            stream.write(text)


def make_project(folder: Path) -> Project:
    """Copy the repository into an empty folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        source, target = ROOT / part, folder / part
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    project = Project(folder)
    # Three methods of different kinds stand for all.
    project.edit("config/config.yaml", "methods: all", "methods: [gcn, brio, linear-correlation]")
    project.bin.mkdir()
    stand_in = project.bin / "python"
    stand_in.write_text(STAND_IN.format(python=sys.executable))
    stand_in.chmod(stand_in.stat().st_mode | stat.S_IXUSR)
    return project


@pytest.fixture
def project(tmp_path) -> Project:
    """A fresh copy without results."""
    return make_project(tmp_path / "brio")


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Project:
    """A copy in which the demo has run; tests take a copy of it."""
    project = make_project(tmp_path_factory.mktemp("finished") / "brio")
    done = project.snakemake("--cores", "2")
    assert done.returncode == 0, done.stdout
    project.said = done.stdout
    return project


@pytest.fixture
def after_demo(finished, tmp_path) -> Project:
    """A copy of the repository, its results and Snakemake's records after the demo."""
    # Modification times are copied too, so nothing looks newer than it is.
    shutil.copytree(finished.folder, tmp_path / "brio", symlinks=True)
    return Project(tmp_path / "brio")


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A working directory whose own config folder comes before that of the repository."""
    monkeypatch.chdir(tmp_path)

    def write(kind: str, name: str, text: str) -> None:
        path = tmp_path / "config" / kind / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    return write
