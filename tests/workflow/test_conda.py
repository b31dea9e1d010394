"""Jobs in conda environments: solved, installed, activated, and with our code on their path."""

import asyncio
import os
import sys
from pathlib import Path

import pytest
from conda_stand_in import CHANNEL, build_channel, create
from tiny import ROOT, make_lab

pytest.importorskip("rattler")
pytest.importorskip("rattler_build")
pytestmark = pytest.mark.slow
ENVIRONMENTS = sorted((ROOT / "envs").glob("*.yaml"))
ACTIVATE = 'export CONDA_PREFIX="$1"\nexport PATH="$1/bin:$PATH"\n'


@pytest.fixture
def conda(tmp_path) -> dict[str, str]:
    """The variables with which Snakemake finds the stand-in."""
    root = tmp_path / "conda"
    build_channel(root, ENVIRONMENTS)
    (root / "bin").mkdir()
    (root / "bin" / "activate").write_text(ACTIVATE)
    program = root / "bin" / "conda"
    stand_in = Path(__file__).with_name("conda_stand_in.py")
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {stand_in} "$@"\n')
    program.chmod(0o755)
    return {"CONDA_STAND_IN": str(root), "PATH": f"{root / 'bin'}:{os.environ['PATH']}"}


def test_jobs_run_in_their_environments(conda, tmp_path):
    lab = make_lab(tmp_path / "lab")
    targets = ("results/splits/tiny/loso.json", "results/tables/settings.csv")
    # What a user has in PYTHONPATH is removed by Snakemake; ours is part of the command.
    done = lab.snakemake(*targets, "--use-conda", "--cores", "2", **conda, PYTHONPATH="/nowhere")
    assert done.returncode == 0, done.stdout
    for target in targets:
        assert (lab.folder / target).exists()
    used = {
        Path(line.split()[1]).name: path.parent
        for path in lab.folder.glob(".snakemake/conda/*/used")
        for line in path.read_text().splitlines()
        if line.startswith("-u ")
    }
    assert set(used) == {"candidates.py", "extract.py", "assemble.py", "split.py", "table.py"}
    assert used["candidates.py"] == used["assemble.py"] != used["split.py"] != used["table.py"]
    records = {path.name for path in (used["split.py"] / "conda-meta").glob("*.json")}
    assert any(name.startswith("pytorch-2.") for name in records), records


def test_a_version_that_is_not_there(conda, tmp_path):
    environment = ROOT / "envs" / "train.yaml"
    broken = tmp_path / "train.yaml"
    broken.write_text(environment.read_text().replace("pytorch >=2", "pytorch >=2.99"))
    with pytest.raises(Exception, match="pytorch"):
        asyncio.run(create(Path(conda["CONDA_STAND_IN"]) / CHANNEL, broken, tmp_path / "prefix"))
