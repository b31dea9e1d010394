"""Which device a job uses, and how exactly it computes there.

Of several GPUs it is the first that no other job has locked, or that fewest have.
"""

import ctypes
import gc
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from brio_core.system.cli import PACE
from brio_core.system.errors import BrioError
from brio_core.system.files import locked

# Locks are held until the process ends, however it ends.
_held: list[int] = []
# Names and values of the C library's options: how many bytes the system itself is asked for, and
# how many free ones at the end of the heap go back to it.
M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = (-3, 2**25), (-1, 2**28)


def start_torch(threads: int) -> None:
    """What a program does before torch computes anything."""
    # cuBLAS is deterministic only with a fixed workspace, read when CUDA starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # From now on garbage may hold tensors. It is not looked for among what was imported.
    if not gc.get_freeze_count():
        gc.freeze()
    gc.set_threshold(*PACE)
    # Short runs on a CPU took an eleventh longer when freed memory went back and was fetched again.
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for option in (M_MMAP_THRESHOLD, M_TRIM_THRESHOLD):
            mallopt(*option)


def choose_device(wanted: str, allow_cpu: bool) -> torch.device:
    """``cuda`` where there is one; the CPU only if it was asked for or allowed."""
    if wanted == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        use_free_gpu()
        return torch.device("cuda")
    if wanted == "auto" and allow_cpu:
        return torch.device("cpu")
    raise BrioError(
        "no CUDA device was found; to use the CPU, set 'device: cpu' or 'allow_cpu: true' in the "
        "configuration, or give a command '--device cpu'"
    )


def make_deterministic(device: torch.device, precision: str) -> None:
    """Same input, same bytes: deterministic kernels; TF32 only if the hyperparameters say so."""
    # The other function for this imports a compiler first, which takes seconds and is not used.
    torch.set_deterministic_debug_mode("error")
    # No result depends on memory that was never written; filling it costs a tenth of a step.
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = False
        torch.cuda.reset_peak_memory_stats()
    elif platform.machine() == "aarch64":
        # There oneDNN takes up to a hundred times as long for many small products.
        torch.backends.mkldnn.enabled = False


@contextmanager
def float32_products(exact: bool) -> Iterator[None]:
    """Products of float32 numbers here: exact ones, or TF32 on a GPU. After it as they were."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest" if exact else "high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def device_name(device: torch.device) -> str:
    """What results say about where they were made."""
    if device.type == "cuda":
        return torch.cuda.get_device_name()
    return f"CPU ({platform.machine()})"


def use_free_gpu() -> None:
    """Make a free GPU the current one; wait for one where all are taken.

    Only what CUDA_VISIBLE_DEVICES shows is considered. A single GPU needs no lock: there Snakemake
    runs one job at a time, and a cluster gives every job its own. A process with several runs keeps
    the one that it has.
    """
    count = torch.cuda.device_count()
    if count > 1 and not _held:
        names = [str(torch.cuda.get_device_properties(number).uuid) for number in range(count)]
        torch.cuda.set_device(claim(names, Path(tempfile.gettempdir())))


def claim(names: Sequence[str], folder: Path, seconds: float = 1.0) -> int:
    """The position of the first name whose lock could be taken, tried every ``seconds``."""
    waiting = False
    while True:
        for position, name in enumerate(names):
            if _lock(folder / f"brio-gpu-{name}.lock"):
                return position
        if not waiting:
            print("all GPUs are taken, waiting for one", file=sys.stderr, flush=True)
            waiting = True
        time.sleep(seconds)


def _lock(path: Path) -> bool:
    # Read-only, so that users who share a machine can lock each other's files.
    file = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
    if not locked(file):
        os.close(file)
        return False
    _held.append(file)
    return True
