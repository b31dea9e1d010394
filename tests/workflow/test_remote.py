"""Training on another machine: the plan is what the rules do, and Snakemake accepts the results."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tiny import EXPERIMENT, ROOT, make_lab


def test_the_plan_has_the_very_commands_of_the_rules(project):
    project.edit("config/config.yaml", "seeds: [0]", "seeds: [1, 0]")
    done = project.snakemake("remote", "--cores", "2")
    assert done.returncode == 0, done.stdout
    content = json.loads((project.folder / "results/remote/jobs.json").read_text())
    planned = [(job["program"], job["arguments"]) for job in content["jobs"]]
    # Who asks for files gets one seed in a job, as on the other machine.
    files = [
        f"results/{job['folder']}" + "/meta.json" * (job["program"] == "train")
        for job in content["jobs"]
    ]
    shown = project.snakemake("-n", "--printshellcmds", *files).stdout
    pattern = r"Shell command: .*/scripts/(train|diagnose)\.py (.*) > .* 2>&1$"
    found = re.findall(pattern, shown, flags=re.M)
    commands = [(program, shlex.split(words)) for program, words in found]
    assert sorted(planned) == sorted(commands) and len(planned) > 20
    seeds = [words[words.index("--seed") + 1] for program, words in planned if program == "train"]
    assert seeds == sorted(seeds), "the first seed of every method comes first"
    order = [program for program, _ in planned]
    assert order == sorted(order, reverse=True), "models that are looked at are trained first"


def test_planning_trains_nothing_and_is_done_whenever_asked(project):
    rules = {job[0] for job in project.plan("remote")}
    assert rules == {
        "make_demo", "candidates", "extract", "assemble", "connect", "split", "blocklength",
        "remote",
    }  # fmt: skip
    assert project.snakemake("remote", "--cores", "2").returncode == 0
    assert project.plan("remote") == {("remote",)}


def machine(folder: Path, *words: object) -> subprocess.CompletedProcess:
    """Run remote.py as on a machine without Snakemake and all that belongs to images."""
    for name in ("snakemake", "nilearn", "nibabel", "yaml", "matplotlib", "sklearn"):
        # The folder of the plan is where jobs look first.
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text("raise ImportError('not on this machine')")
    command = [sys.executable, "scripts/remote.py", *map(str, words)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def take(lab, *archives):
    command = [sys.executable, ROOT / "scripts/remote.py", "take", *archives]
    environment = lab.environment(PYTHONPATH=str(ROOT))
    return subprocess.run(
        list(map(str, command)), cwd=lab.folder, env=environment, capture_output=True, text=True
    )


def make_diagnosed_lab(folder):
    lab = make_lab(folder)
    tables = [*EXPERIMENT["outputs"]["tables"], {"name": "scans", "table": "scan_length"}]
    outputs = EXPERIMENT["outputs"] | {"tables": tables}
    path = folder / "config/experiments/tiny.yaml"
    path.write_text(yaml.safe_dump(EXPERIMENT | {"outputs": outputs}))
    return lab


def trained(lab, *words):
    """Lines of a plan that would train or diagnose."""
    done = lab.snakemake("-n", *words)
    assert done.returncode == 0, done.stdout
    lines = done.stdout.splitlines()
    return [line for line in lines if line.startswith(("rule train:", "rule diagnose:"))]


@pytest.mark.slow
def test_there_and_back(tmp_path):
    home, local = (make_diagnosed_lab(tmp_path / name) for name in ("home", "local"))
    # At home it is a study: its files lie beside its configuration.
    (home.folder / "config").rename(home.folder / "study")
    home.config = home.folder / "study/tiny.yaml"
    done = local.snakemake("--cores", "2")
    assert done.returncode == 0, done.stdout

    done = home.snakemake("remote", "--cores", "2")
    assert done.returncode == 0, done.stdout
    there = tmp_path / "there"
    packed = tmp_path / "remote.tar"
    subprocess.run(["tar", "-chf", packed, "-C", home.results, "remote"], check=True)
    subprocess.run(["tar", "-xf", packed, "-C", tmp_path], check=True)
    (tmp_path / "remote").rename(there)

    work = ("work", "plan.json", "--minutes")
    done = machine(there, *work, 0)
    assert done.returncode == 0 and done.stdout.count("waiting") == 4, done.stderr
    done = machine(there, *work, 5, "--only", "runs/*/gcn/*", "--pack", "first.zip")
    assert done.returncode == 0 and "gcn/seed-0: " in done.stdout, done.stderr
    # What is interrupted right away is done by the next call.
    done = machine(there, *work, 0.01)
    assert done.returncode == 0 and "time is up: " in done.stdout, done.stderr
    done = machine(there, *work, 5, "--pack", "second.zip")
    assert done.returncode == 0 and "runs/tiny/loso/gcn/seed-0: " not in done.stdout, done.stderr
    assert "waiting" not in done.stdout

    assert len(trained(home)) == 4
    (there / "cut.zip").write_bytes((there / "second.zip").read_bytes()[:-100])
    done = take(home, there / "cut.zip")
    assert done.returncode == 1 and "fetch it again" in done.stderr
    assert len(trained(home)) == 4, "nothing was placed"
    done = take(home, there / "first.zip", there / "second.zip")
    assert done.returncode == 0 and "4 jobs taken, 0 of the plan are left" in done.stdout, (
        done.stderr
    )
    assert trained(home) == []
    done = home.snakemake("--cores", "2")
    assert done.returncode == 0, done.stdout
    assert home.checksums() == local.checksums()
    assert not list(home.results.rglob("models.pt"))

    # Snakemake has recorded what they were made with, so a change is noticed.
    overrides = {"gcn": {"epochs": 4, "patience": 0, "hidden": 8, "precision": "float32"}}
    for lab in (home, local):
        lab.configure(overrides=overrides)
    # The models of the other run are gone at home, and not needed.
    assert len(trained(local)) == len(trained(home)) == 2
    done = home.snakemake("remote", "--cores", "2")
    assert done.returncode == 0, done.stdout
    shutil.copytree(home.results / "remote", there, dirs_exist_ok=True)
    done = machine(there, *work, 5, "--pack", "third.zip")
    assert done.returncode == 0 and "linear-correlation/seed-0:" not in done.stdout
    assert take(home, there / "third.zip").returncode == 0
    assert trained(home) == [], "also where an earlier record told of other hyperparameters"
    for lab in (home, local):
        assert lab.snakemake("--cores", "2").returncode == 0
    assert home.checksums() == local.checksums()
