"""What a process sees to that does many jobs: its time, what jobs leave behind, a lost GPU."""

import gc
import math
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


class TimeIsUp(BaseException):
    """Raised in the middle of a job; like an interrupt it must pass all handlers of errors."""


@contextmanager
def alarm(seconds: float) -> Iterator[None]:
    """Raise :class:`TimeIsUp` when it is."""

    def ring(number: int, frame: object) -> None:
        # Whoever cleans up because it has rung is left in peace.
        if not isinstance(sys.exception(), TimeIsUp):
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    # Zero would mean that it never rings. It rings again: Python drops what a finaliser raises.
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3) if math.isfinite(seconds) else 0, 1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def like_a_new_process() -> None:
    """Undo what the job before has left behind: memory, its record, and torch's switches."""
    import torch

    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")
    # The largest memory so far is counted anew, where the system can do that (Linux).
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def gpu_is_lost() -> bool:
    """After some errors a process can never use its GPU again."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def start_again(call: str, deadline: float) -> None:
    """Go on in a new process in place of this one; in the same call, so without the same job."""
    print("the GPU is lost to this process, going on in a new one", file=sys.stderr, flush=True)
    left = max(0.0, deadline - time.monotonic()) / 60
    more = ["--call", call, "--minutes", f"{left:.3f}"]
    os.execv(sys.executable, [*sys.orig_argv, *more])
