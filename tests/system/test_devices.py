"""Several GPUs are shared out by locks that end with their process."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from brio_core.system import devices
from brio_core.system.devices import choose_device
from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys, time
from pathlib import Path
from brio_core.system.devices import claim
print(claim(sys.argv[2:], Path(sys.argv[1]), 0.05), flush=True)
time.sleep(60)
"""


def start(folder, *names):
    return subprocess.Popen(
        [sys.executable, "-c", JOB, folder, *names], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_every_job_has_a_gpu_of_its_own(tmp_path):
    jobs = []
    try:
        for expected in ("0\n", "1\n"):
            jobs.append(start(tmp_path, "one", "two"))
            assert jobs[-1].stdout.readline() == expected
        # The third waits, and takes over from one that is killed.
        jobs.append(start(tmp_path, "one", "two"))
        assert "all GPUs are taken" in jobs[2].stderr.readline()
        jobs[1].send_signal(signal.SIGKILL)
        assert jobs[2].stdout.readline() == "1\n"
    finally:
        for job in jobs:
            job.kill()
            job.communicate()


def test_one_gpu_needs_no_lock(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(devices, "claim", lambda *_: pytest.fail("locked"))
    devices.use_free_gpu()


def test_training_uses_what_it_has_claimed(monkeypatch, tmp_path):
    class Properties:
        def __init__(self, number):
            self.uuid = f"gpu-{number}"

    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_properties", Properties)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(devices.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(devices, "_held", [])
    assert choose_device("auto", False).type == "cuda"
    assert choose_device("cuda", False).type == "cuda"
    assert chosen == [0], "a process that trains several cells keeps its GPU"
    assert [path.name for path in tmp_path.iterdir()] == ["brio-gpu-gpu-0.lock"]


def test_cpu_takes_no_gpu(monkeypatch):
    monkeypatch.setattr(devices, "use_free_gpu", lambda: pytest.fail("a GPU was claimed"))
    assert choose_device("cpu", False).type == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", True).type == "cpu"
    with pytest.raises(BrioError, match="no CUDA device was found"):
        choose_device("auto", False)
