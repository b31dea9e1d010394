"""Locks on GPUs that end with their process, and random numbers that depend on their key alone."""

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from brio_core.system import devices
from brio_core.system.devices import choose_device, float32_products, make_deterministic
from brio_core.system.errors import BrioError
from brio_core.system.randomness import (
    dropout,
    fold_in,
    torch_generator,
    uniform,
    uniform_at,
)
from brio_core.system.seeds import derive_seed, numpy_generator
from brio_core.training.in_memory import exact_arithmetic

ROOT = Path(__file__).resolve().parents[2]
JOB = """
import sys, time
from pathlib import Path
from brio_core.system.devices import claim
print(claim(sys.argv[2:], Path(sys.argv[1]), 0.05), flush=True)
time.sleep(60)
"""
# Prints whether memory is still the program's after it was freed.
FREED = """
import ctypes
from brio_core.system.devices import start_torch
start_torch(1)
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
place = library.malloc(ctypes.c_size_t(20 * 2**20))
library.free(ctypes.c_void_p(place))
(heap,) = [line.split()[0] for line in open("/proc/self/maps") if line.endswith("[heap]\\n")]
first, last = (int(end, 16) for end in heap.split("-"))
print(first <= place < place + 20 * 2**20 <= last)
"""
# Prints what a training program imports besides torch, and how it looks for garbage then.
STARTED = """
import gc, sys
from brio_core.system.cli import PACE, run
def main():
    print(gc.get_threshold()[0] > PACE[0])
    from brio_core.cohorts.cohort import Cohort
    from brio_core.system.devices import start_torch
    from brio_core.training.run import train_runs
    start_torch(1)
    some, whole = Cohort.load(sys.argv[1]).fc, Cohort.load(sys.argv[1], 10**9).fc
    print(type(some).__name__, type(whole).__name__, (some[:] == whole).all())
    print(gc.get_threshold() == PACE, gc.get_freeze_count() > 100_000)
    print({"pandas", "scipy", "matplotlib"} & sys.modules.keys())
run(main)
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


def test_words_decide():
    assert derive_seed("a", 1) == derive_seed("a", "1") != derive_seed("a1")
    assert 0 <= derive_seed("x") < 2**63
    assert numpy_generator("a").random() == numpy_generator("a").random()
    assert torch.rand((), generator=torch_generator(1)) != torch.rand(
        (), generator=torch_generator(2)
    )


def test_deterministic_kernels_cost_no_import(monkeypatch):
    """torch's own function for it imports a compiler, which takes two seconds of every run."""
    monkeypatch.setattr(torch, "use_deterministic_algorithms", None)
    before = torch.get_deterministic_debug_mode()
    try:
        make_deterministic(torch.device("cpu"), "float32")
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.set_deterministic_debug_mode(before)


@pytest.mark.parametrize(("machine", "wanted"), [("aarch64", False), ("x86_64", True)])
def test_one_dnn_is_left_out_on_arm(monkeypatch, machine, wanted):
    """Its products with a transposed factor take a hundred times as long there."""
    monkeypatch.setattr("platform.machine", lambda: machine)
    trial = SimpleNamespace(hyperparameters=None)
    monkeypatch.setattr(torch.backends.mkldnn, "enabled", True)
    with exact_arithmetic("cpu", trial):
        assert torch.backends.mkldnn.enabled is wanted
    assert torch.backends.mkldnn.enabled


def hashed(value: int) -> int:
    """One 32-bit hash, in Python's whole numbers."""
    value = (value ^ value >> 16) * 0x7FEB352D % 2**32
    value = (value ^ value >> 15) * 0x846CA68B % 2**32
    return value ^ value >> 16


def test_random_numbers_equal_a_slow_reading():
    key = -(2**62) + 12345
    low, high = key % 2**32, key >> 32
    folded = hashed((hashed(low) + 7 * 0x9E3779B9 + high) % 2**32)
    assert fold_in(torch.tensor(key), 7).item() == folded
    # Positions far beyond 32 bits count by their low ones.
    for place in (0, 1, 2**31, 2**32 - 1, 2**40 + 3):
        expected = hashed(((hashed(place % 2**32) ^ folded) + 0x9E3779B9) % 2**32) >> 8
        found = uniform_at(torch.tensor(folded), torch.tensor([place]))
        assert found.item() == expected / 2**24


def test_uniform_numbers_are_uniform_and_uncorrelated():
    values = uniform(torch.tensor(derive_seed("test")), (200_000,)).double().numpy()
    assert values.min() >= 0 and values.max() < 1
    counts = np.histogram(values, 100, (0, 1))[0]
    # Chi-square with 99 degrees of freedom: mean 99, standard deviation 14.
    assert abs(((counts - 2000) ** 2 / 2000).sum() - 99) < 5 * 14
    for lag in (1, 2, 7, 1024):
        assert abs(np.corrcoef(values[:-lag], values[lag:])[0, 1]) < 5 / np.sqrt(len(values))


def test_neighbouring_keys_and_streams_are_unrelated():
    key = torch.tensor(derive_seed("test"))
    keys = fold_in(key, torch.arange(2000))
    assert len(keys.unique()) == 2000
    values = uniform_at(keys[:, None], torch.arange(50)).double()
    correlation = torch.corrcoef(values.mT)
    off_diagonal = correlation[~torch.eye(50, dtype=torch.bool)]
    assert off_diagonal.abs().max() < 5 / 2000**0.5
    streams = [uniform(key, (1000,), stream) for stream in (0, 1)]
    assert abs(float(torch.corrcoef(torch.stack(streams))[0, 1])) < 5 / 1000**0.5


def test_numbers_do_not_depend_on_company():
    keys = fold_in(torch.tensor(derive_seed("test")), torch.arange(3))
    alone = torch.stack([uniform(key, (4, 5)) for key in keys])
    assert torch.equal(torch.func.vmap(lambda key: uniform(key, (4, 5)))(keys), alone)
    assert torch.equal(fold_in(keys, 3), torch.stack([fold_in(key, 3) for key in keys]))


@pytest.mark.parametrize("probability", [0.0, 0.3])
def test_dropout_keeps_the_mean(probability):
    values = torch.ones(100_000)
    dropped = dropout(values, probability, torch.tensor(5))
    assert float(dropped.mean()) == pytest.approx(1, abs=0.02)
    assert float((dropped == 0).float().mean()) == pytest.approx(probability, abs=0.01)
    assert torch.equal(dropped, dropout(values, probability, torch.tensor(5)))


@pytest.mark.parametrize("exact, inside", [(True, "highest"), (False, "high")])
def test_precision_of_products_is_given_back_also_after_an_error(exact, inside):
    before = torch.get_float32_matmul_precision()
    try:
        for outside in ("highest", "high"):
            torch.set_float32_matmul_precision(outside)
            with pytest.raises(KeyError), float32_products(exact):
                assert torch.get_float32_matmul_precision() == inside
                raise KeyError
            assert torch.get_float32_matmul_precision() == outside
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs the GNU C library")
def test_freed_memory_is_kept():
    done = subprocess.run(
        [sys.executable, "-c", FREED], cwd=ROOT, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "True\n"


def test_a_program_starts_without_pauses_and_without_what_it_does_not_need(trained_demo_cell):
    _, (_, cohort_dir, *_) = trained_demo_cell
    done = subprocess.run(
        [sys.executable, "-c", STARTED, str(cohort_dir)], cwd=ROOT, capture_output=True,
        text=True, check=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["True", "Rows ndarray True", "True True", "set()"]
