"""Other ways to install: a wheel outside the clone, containers. Public CI and issue templates."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = """
import sys
from pathlib import Path
import brio_core
from brio_core.cohorts.atlases import regions
from brio_core.system.files import IN_CLONE, make_planning_importable
assert brio_core.__file__.startswith(sys.argv[1]) and not IN_CLONE
assert (Path(regions.__file__).parent / "cc200.csv").is_file()
assert (Path(brio_core.__file__).parent / "presets" / "brio.yaml").is_file()
make_planning_importable()
from workflow.planning.schema import SCHEMAS, read_dataset
assert str(SCHEMAS).startswith(sys.argv[1])
print(read_dataset(Path(sys.argv[2]))["rois"])
"""


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_a_wheel_works_without_the_clone(tmp_path):
    """In a process that sees the packages of this environment, and the wheel before all else."""
    source = tmp_path / "source"
    for name in ("brio_core", "config", "workflow"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("LICENSE", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    wheel = [sys.executable, "-m", "pip", "wheel", source, "--no-deps", "--no-build-isolation"]
    subprocess.run([*wheel, "--quiet", "--wheel-dir", tmp_path], check=True)
    (built,) = tmp_path.glob("brio_core-*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "installed")
    dataset = ROOT / "config" / "datasets" / "demo.yaml"
    command = [sys.executable, "-P", "-c", OUTSIDE, tmp_path / "installed", dataset]
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and "expected" in done.stdout, done.stderr


def parts(name: str) -> dict[str, list[str]]:
    """Sections of an Apptainer definition, without comments and empty lines."""
    found: dict[str, list[str]] = {"header": []}
    for line in read(name).splitlines():
        if line.startswith("%"):
            found[line[1:].strip()] = []
        elif line.strip() and not line.startswith("#"):
            found[next(reversed(found))].append(line.strip())
    return found


class TestContainers:
    def test_both_recipes_do_the_same(self):
        recipe = parts("envs/brio.def")
        steps = [line.split(maxsplit=1) for line in read("envs/Containerfile").splitlines()]
        steps = {name: text for name, text in steps if name.isupper()}
        assert recipe["header"][1] == f"From: {steps['FROM'].removeprefix('docker.io/library/')}"
        copied = [line.split() for line in recipe["files"]]
        ignored = read(".dockerignore").split()
        assert "*" in ignored and {f"!{name}" for name, _ in copied} < set(ignored)
        assert sum(line.startswith("!") for line in ignored) == len(copied)
        assert {place for _, place in copied} == {steps["COPY"].split()[1] + "/"}
        assert recipe["environment"] == [f"export {steps['ENV']}"]
        words = " ".join(re.findall(r'"([^"]+)"', steps["ENTRYPOINT"]))
        assert recipe["runscript"] == [f'exec {words} "$@"']
        for run in (*recipe["post"], steps["RUN"]):
            assert run.startswith('TORCH_INDEX="') and run.endswith(
                "sh /opt/brio/envs/container.sh"
            )

    def test_what_is_copied_is_all_that_runs_need(self):
        copied = {line.split()[0] for line in parts("envs/brio.def")["files"]}
        assert all((ROOT / name).exists() for name in copied)
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if listed.returncode:
            pytest.skip("not a clone")
        left = {name.split("/")[0] for name in listed.stdout.split()} - copied
        assert not {name for name in left if name.endswith((".py", ".txt", ".toml"))}
        subprocess.run(["sh", "-n", ROOT / "envs" / "container.sh"], check=True)


def test_public_ci_and_templates():
    steps = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"]["test"]["steps"]
    called = {step["run"].removeprefix("make ") for step in steps if "run" in step}
    assert called == {"lint", "test", "docs"} and called <= set(
        re.findall(r"^([a-z-]+):", read("Makefile"), re.M)
    )
    for path in (ROOT / ".github" / "ISSUE_TEMPLATE").iterdir():
        form = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert {"name", "description", "body"} <= form.keys()
        assert "brio check" in path.read_text(encoding="utf-8")
        assert all(part["attributes"]["label"] for part in form["body"])
