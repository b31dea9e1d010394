"""Work a plan off: job after job in one process, within a given time, resuming what was begun."""

import gc
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

from brio_core.errors import BrioError
from brio_core.files import read_json
from brio_core.handover.plan import Job, Plan, check_code
from brio_core.inputs import checksum

# Cells of one method differ a little in time, by early stopping and by settings of variants.
MARGIN = 1.1


class TimeIsUp(BaseException):
    """Raised in the middle of a job; like an interrupt it must pass all handlers of errors."""


class Worker:
    """The unfinished jobs of a plan on this machine."""

    def __init__(
        self,
        plan: Plan,
        root: Path,
        programs: Mapping[str, ModuleType],
        only: Sequence[str] = (),
        without: Sequence[str] = (),
    ) -> None:
        self._plan = plan
        self._root = root
        self._programs = programs
        self._unfinished = {job.folder: job for job in plan.unfinished(root, programs)}
        self.chosen = [
            job
            for job in plan.jobs
            if (not only or _matches(job, only)) and not _matches(job, without)
        ]
        self.waiting = [job for job in self.chosen if job.folder in self._unfinished]
        self.failed: list[Job] = []
        self._seconds: dict[str, float] = {}
        for job in plan.jobs:
            if job.folder not in self._unfinished:
                self._note_time(job)

    def describe(self) -> Iterator[str]:
        """One line per job: finished or not, where, and what it will take if that is known."""
        for job in self.chosen:
            state = "waiting" if job in self.waiting else "finished"
            device = "GPU" if job.gpu else "CPU"
            known = self._expected(job)
            seconds = "      ?" if math.isnan(known) else f"{known:5.0f} s"
            yield f"{state:8}  {device}  {seconds}  {job.folder}"

    def check(self, same_inputs: bool = True) -> None:
        """Raise if code or files are not those that the plan was made with."""
        check_code(self.waiting, same_machine=False)
        if not same_inputs:
            return
        needed = {name for job in self.waiting for name in job.inputs}
        for name in self._plan.inputs.keys() & needed:
            if checksum(self._root / name) != self._plan.inputs[name]:
                raise BrioError(
                    f"{self._root / name} is not the file that the plan was made with; copy it "
                    "again, or say --other-inputs if it was made here on purpose"
                )

    def run(self, seconds: float, options: Callable[[Job], Sequence[str]]) -> None:
        """Do what can be done in time; ``options`` are added to the command of a job."""
        deadline = time.monotonic() + seconds
        job = None
        try:
            with _alarm(seconds):
                while job := self._next(deadline - time.monotonic(), job is not None):
                    self._run_one(job, options(job), deadline)
                    self.waiting.remove(job)
        except TimeIsUp:
            # What a job has reached lies in its folder, and the next call goes on from there.
            print(f"time is up{f': {job.folder} continues next time' if job else ''}", flush=True)
        if self.waiting:
            print(f"{len(self.waiting)} jobs are left for the next call", flush=True)

    def _next(self, seconds: float, begun_one: bool) -> Job | None:
        """The first job that is ready and fits into the time.

        Where none fits, a call that has done nothing yet begins one all the same: a job that is
        longer than every call is done in pieces.
        """
        ready = [job for job in self.waiting if self._is_ready(job)]
        fitting = (job for job in ready if not self._expected(job) * MARGIN > seconds)
        return next(fitting, ready[0] if ready and not begun_one else None)

    def _is_ready(self, job: Job) -> bool:
        """Whether all that it reads is there and final."""
        makers = {str(Path(name).parent) for name in job.inputs}
        return makers.isdisjoint(self._unfinished)

    def _expected(self, job: Job) -> float:
        """The longest that jobs of the same kind took here; NaN before the first."""
        return self._seconds.get(_kind(job), math.nan)

    def _note_time(self, job: Job, seconds: float = 0.0) -> None:
        # The first job of a process waits for torch and the GPU; a cell's own time does not.
        if job.program == "train":
            seconds = read_json(self._root / job.folder / "meta.json")["seconds"]
        if seconds:
            self._seconds[_kind(job)] = max(seconds, self._seconds.get(_kind(job), 0.0))

    def _run_one(self, job: Job, more: Sequence[str], deadline: float) -> None:
        words = [*self._plan.words(job, self._root), *more]
        begun = time.monotonic()
        _like_a_new_process()
        try:
            self._programs[job.program].main(words)
            self._plan.check(job, self._root, self._programs)
        except Exception as error:
            if not isinstance(error, BrioError):
                traceback.print_exc()
            print(f"failed: {job.folder}: {error}", file=sys.stderr, flush=True)
            self.failed.append(job)
        else:
            del self._unfinished[job.folder]
            seconds = time.monotonic() - begun
            self._note_time(job, seconds)
            left = len(self.waiting) - 1
            print(f"{job.folder}: {seconds:.1f} s, {left} jobs left", flush=True)
        if job in self.failed and _gpu_is_lost():
            _start_again(job, deadline)


def _kind(job: Job) -> str:
    """Jobs that take about the same time: a method on a cohort under a protocol."""
    return " ".join([job.program, *Path(job.folder).parts[1:3], *job.methods])


def _matches(job: Job, patterns: Sequence[str]) -> bool:
    """By a part of the folder, such as the variant, or by the folder as a whole."""
    names = [job.folder, *Path(job.folder).parts]
    return any(fnmatchcase(name, pattern) for name in names for pattern in patterns)


@contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    def ring(number: int, frame: object) -> None:
        raise TimeIsUp

    before = signal.signal(signal.SIGALRM, ring)
    # Zero would mean that it never rings. It rings again: Python drops what a finaliser raises.
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3) if math.isfinite(seconds) else 0, 30)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _like_a_new_process() -> None:
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


def _gpu_is_lost() -> bool:
    """After some errors a process can never use its GPU again."""
    import torch

    if not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception:
        return True
    return False


def _start_again(job: Job, deadline: float) -> None:
    """Go on in a new process in place of this one, without the job that has broken it."""
    print("the GPU is lost to this process, going on in a new one", file=sys.stderr, flush=True)
    left = max(0.0, deadline - time.monotonic()) / 60
    more = ["--without", job.folder, "--minutes", f"{left:.3f}"]
    os.execv(sys.executable, [*sys.orig_argv, *more])
