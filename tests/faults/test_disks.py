"""Disks that are full or cannot be written to: one sentence, and nothing half-written."""

import os
import subprocess
from dataclasses import replace

import pytest

pytestmark = pytest.mark.faults
STAGES = (
    "candidates", "extract", "assemble", "connect", "split", "blocklength", "train-gcn",
    "train-linear-correlation", "summarise", "table", "figure",
)  # fmt: skip


def run_in_namespace(stage, lab, how: str, folder: str) -> tuple[int, str]:
    """Run a stage while ``folder`` is mounted as ``how`` says, for this command only."""
    command = stage.command.replace(f"> {stage.log} 2>&1", "2>&1")
    script = (
        f"mount {how} {folder} && {{ head -c 64k /dev/zero > {folder}/fill; {command}; code=$?;"
        f" find {folder} -type f | sed s/^/left:/; exit $code; }}"
    )
    done = subprocess.run(
        ["unshare", "--mount", "bash", "-c", script],
        cwd=lab.folder, env=lab.environment(), text=True, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert "unshare" not in done.stdout and "mount:" not in done.stdout, done.stdout
    return done.returncode, done.stdout


@pytest.fixture(autouse=True)
def as_root():
    assert os.geteuid() == 0, "these tests mount file systems; run them as root"


@pytest.mark.parametrize("name", STAGES)
def test_full_disk(name, lab, stages):
    stage = redirected(stages[name], lab, "full")
    code, said = run_in_namespace(stage, lab, "-t tmpfs -o size=64k tmpfs", "full")
    check(code, said, "No space left on device", stage)


@pytest.mark.parametrize("name", STAGES)
def test_read_only_folder(name, lab, stages):
    stage = redirected(stages[name], lab, "fixed")
    code, said = run_in_namespace(stage, lab, "-t tmpfs -o ro tmpfs", "fixed")
    check(code, said, "Read-only file system", stage)


def redirected(stage, lab, folder: str):
    """The same stage with outputs in a folder of their own."""
    (lab.folder / folder).mkdir()
    command, outputs = stage.command, []
    for name in stage.outputs:
        target = f"{folder}/{name.rsplit('/', 1)[1]}"
        command = command.replace(f" {name}", f" {target}")
        outputs.append(target)
    for option in ("--out-dir", "--out-prefix"):
        old = name.rsplit("/", 1)[0] if option == "--out-dir" else name.rsplit(".", 1)[0]
        new = folder if option == "--out-dir" else target.rsplit(".", 1)[0]
        command = command.replace(f"{option} {old}", f"{option} {new}")
    assert command != stage.command
    return replace(stage, command=command, outputs=tuple(outputs))


def check(code: int, said: str, reason: str, stage) -> None:
    """Exit code 1, one sentence, and no file that is not complete."""
    assert code == 1, said
    # h5py complains at length about every object of a file that it could not write.
    assert "Traceback" not in said or "h5py/_objects.pyx" in said, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and f"could not be written: {reason}" in errors[0], said
    left = [line for line in said.splitlines() if line.startswith("left:")]
    assert set(left) <= {"left:full/fill"}, said
