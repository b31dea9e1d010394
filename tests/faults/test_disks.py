"""Disks that are full or cannot be written to: one sentence, and nothing half-written."""

import os
from dataclasses import replace

import pytest

from tests.forked import Forked

pytestmark = pytest.mark.faults
STAGES = (
    "candidates", "extract", "assemble", "connect", "split", "blocklength", "train-gcn",
    "train-linear-correlation", "summarise", "table", "figure",
)  # fmt: skip


def run_mounted(stage, lab, how: str, folder: str) -> tuple[int, str]:
    """Run a stage while ``folder`` is mounted as ``how`` says, which only such programs see."""
    before = f"mount {how} {folder}; head -c 64k /dev/zero > {folder}/fill"
    after = f"find {folder} -type f | sed s/^/left:/; umount {folder}"
    code, said = stage.run(lab, before=before, after=after)
    assert "mount:" not in said, said
    return code, said


@pytest.fixture(autouse=True)
def as_root():
    assert os.geteuid() == 0, "these tests mount file systems; run them as root"


@pytest.mark.parametrize("name", STAGES)
def test_full_disk(name, lab, stages):
    stage = redirected(stages[name], lab, "full")
    code, said = run_mounted(stage, lab, "-t tmpfs -o size=64k tmpfs", "full")
    check(code, said, "No space left on device", stage)


@pytest.mark.parametrize("name", STAGES)
def test_read_only_folder(name, lab, stages):
    stage = redirected(stages[name], lab, "fixed")
    code, said = run_mounted(stage, lab, "-t tmpfs -o ro tmpfs", "fixed")
    check(code, said, "Read-only file system", stage)


# Sixty scans, as extract or assemble writes them: some 800 KB.
WRITER = """
import sys
import numpy as np
from brio_core.cohorts.extraction import write_batch
from brio_core.cohorts.scan import Scan
from brio_core.cohorts.stores import Rois, write_series
from brio_core.system.cli import run

draw, names = np.random.default_rng(0), [str(number) for number in range(50)]
scans = {f"s{number}": draw.standard_normal((60, 50)).astype("f4") for number in range(60)}

def extract():
    found = (Scan(scan, 60, tuple(names)) for scan in scans.values())
    write_batch("full/out.h5", zip(scans, found))

def assemble():
    write_series("full/out.h5", scans, scans.values(), Rois.named(names), {})

run(locals()[sys.argv[1]])
"""


@pytest.mark.parametrize("reason", ["No space left on device", "File too large"])
@pytest.mark.parametrize("name", ["extract", "assemble"])
def test_a_disk_that_fills_up(name, reason, tmp_path):
    """HDF5 crashes when it cannot write what it holds, so it must not notice."""
    (tmp_path / "full").mkdir()
    (tmp_path / "writer.py").write_text(WRITER)
    for size in (4, 12, 20, 28, 48, 96, 200, 340, 512, 600):
        disk, largest = (size, None) if "space" in reason else (4096, size)
        how = {
            "before": f"mount -t tmpfs -o size={disk}k tmpfs full",
            "after": "echo left:$(ls -A full); umount full",
        }
        words, log = [tmp_path / "writer.py", name], tmp_path / f"{size}.log"
        code = Forked(words, tmp_path, dict(os.environ), log, **how, largest=largest).wait()
        said = f"error: full/out.h5 could not be written: {reason}\nleft:\n"
        assert (code, log.read_text()) == (1, said), size


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
    assert "Traceback" not in said, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1 and f"could not be written: {reason}" in errors[0], said
    left = [line for line in said.splitlines() if line.startswith("left:")]
    assert set(left) <= {"left:full/fill"}, said
