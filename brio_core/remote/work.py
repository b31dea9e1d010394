"""Work a plan off: job after job, within a given time, resuming what was begun."""

import math
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from brio_core.cohorts.checksums import checksum
from brio_core.remote.claims import Claims
from brio_core.remote.lifetime import (
    TimeIsUp,
    alarm,
    gpu_is_lost,
    like_a_new_process,
    start_again,
)
from brio_core.remote.plan import Job, Plan, check_code
from brio_core.system import signals as interrupts
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json

# Cells of one method differ a little in time, by early stopping and by settings of variants.
MARGIN = 1.1
# Seconds between two looks at what other processes have done.
PAUSE = 1.0


class Worker:
    """The unfinished jobs of a plan on this machine, which other processes may work off too.

    ``call`` names the call of the program that a process belongs to, ``processes`` says how many
    belong to it.
    """

    def __init__(
        self,
        plan: Plan,
        root: Path,
        programs: Mapping[str, ModuleType],
        only: Sequence[str] = (),
        without: Sequence[str] = (),
        call: str | None = None,
        processes: int = 1,
    ) -> None:
        self._plan = plan
        self._root = root
        plan.check_patterns("--only", only)
        plan.check_patterns("--without", without)
        self._programs = programs
        self._processes = processes
        self.claims = Claims(root, call or uuid4().hex)
        # Before the results are looked at: what comes later is seen by its new time.
        self._stamps = {job.folder: self._stamp(job) for job in plan.jobs}
        self._unfinished = {job.folder: job for job in plan.unfinished(root, programs)}
        self.chosen = [
            job for job in plan.jobs if (not only or job.matches(only)) and not job.matches(without)
        ]
        self.waiting = [job for job in self.chosen if job.folder in self._unfinished]
        self.failed: list[Job] = []
        self._seeds = list(dict.fromkeys(Path(job.folder).name for job in plan.jobs))
        self._seconds = dict(plan.seconds)
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
        job, begun_one = None, False
        try:
            with alarm(seconds):
                while job := self._next(deadline, begun_one):
                    self._run_one(job, options(job), deadline)
                    self.waiting.remove(job)
                    begun_one, job = True, None
        except TimeIsUp:
            # What a job has reached lies in its folder, and the next call goes on from there.
            print(f"time is up{f': {job.folder} continues next time' if job else ''}", flush=True)
        finally:
            self.claims.release()

    def look_again(self) -> None:
        """Notice what other processes have finished."""
        for job in list(self._unfinished.values()):
            before, now = self._stamps[job.folder], self._stamp(job)
            self._stamps[job.folder] = now
            if now != before and self._plan.is_finished(job, self._root, self._programs):
                self._finish(job)
                if job in self.waiting:
                    self.waiting.remove(job)

    def _next(self, deadline: float, begun_one: bool) -> Job | None:
        """Claim a job, or wait for one as long as others work at what could make one ready."""
        others, pauses = True, 0
        while True:
            if job := self._claim(deadline - time.monotonic(), begun_one):
                return job
            # Once nobody is at work it looks a last time: a job may just have become ready.
            if not others:
                return None
            if others := self._others_work():
                if not pauses and begun_one:
                    like_a_new_process()  # which keeps no memory of the GPU from the others
                pauses += 1
                time.sleep(PAUSE)

    def _claim(self, seconds: float, begun_one: bool) -> Job | None:
        """The first job that is ready, fits into the time, and could be claimed."""
        self.look_again()
        for job in self._fitting(seconds, begun_one):
            if self.claims.take(job.folder):
                # Another call may have finished it in between.
                self.look_again()
                if job in self.waiting:
                    return job
                self.claims.release()
        return None

    def _fitting(self, seconds: float, begun_one: bool) -> list[Job]:
        """Jobs that are ready and fit into the time, in the order in which they should be done.

        Where none fits, a process that has done nothing yet begins one all the same: a job that is
        longer than every call is done in pieces.
        """
        ready = [job for job in self.waiting if self._is_ready(job)]
        if self._processes > 1:
            ready.sort(key=self._rank)
        fitting = [job for job in ready if not self._expected(job) * MARGIN > seconds]
        return fitting or ([] if begun_one else ready)

    def _rank(self, job: Job) -> tuple[int, float]:
        """Seed by seed as in the plan; long jobs first, so that no process ends much later.

        Those of unknown length may be the longest.
        """
        known = self._expected(job)
        return self._seeds.index(Path(job.folder).name), -math.inf if math.isnan(known) else -known

    def _others_work(self) -> bool:
        """Whether a process is busy with what is still waiting here, or with what that reads."""
        names = {job.folder for job in self.waiting}
        names |= {maker for job in self.waiting for maker in _makers(job)} & self._unfinished.keys()
        return any(map(self.claims.is_held, names))

    def _is_ready(self, job: Job) -> bool:
        """Whether all that it reads is there and final."""
        return _makers(job).isdisjoint(self._unfinished)

    def _expected(self, job: Job) -> float:
        """The longest that jobs of the same kind took so far; NaN before the first."""
        return self._seconds.get(job.kind, math.nan)

    def _stamp(self, job: Job) -> int | None:
        """The time of the file that is written last."""
        try:
            return (self._root / job.folder / "meta.json").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def _finish(self, job: Job) -> None:
        del self._unfinished[job.folder]
        self._note_time(job)

    def _note_time(self, job: Job) -> None:
        # The first job of a process waits for torch and the GPU; a job's own time does not.
        seconds = read_json(self._root / job.folder / "meta.json")["seconds"]
        self._seconds[job.kind] = max(seconds, self._seconds.get(job.kind, 0.0))

    def _beside(self) -> int:
        """How many processes work here beside this one, in this call or in others."""
        at_work = sum(map(self.claims.is_held, self._unfinished))
        return max(self._processes, at_work) - 1

    def _note_beside(self, job: Job, before: int) -> None:
        """Another call may have begun while the job was at work."""
        if (now := self._beside()) > before:
            path = self._root / job.folder / "meta.json"
            write_json(path, read_json(path) | {"beside": now})

    def _run_one(self, job: Job, more: Sequence[str], deadline: float) -> None:
        words = [*self._plan.words(job, self._root), *more]
        beside = self._beside()
        if job.program == "train":
            words += ["--beside", str(beside)]
        begun = time.monotonic()
        like_a_new_process()
        # As Snakemake does with a folder that a job makes: nothing older may stay in it.
        for name in job.outputs:
            if (self._root / name).is_dir():
                shutil.rmtree(self._root / name)
        try:
            self._programs[job.program].main(words)
            self._plan.check(job, self._root, self._programs)
        except Exception as error:
            interrupts.reraise()
            if time.monotonic() > deadline:
                # A library may replace what the alarm raises by an error of its own.
                raise TimeIsUp from error
            if not isinstance(error, BrioError):
                traceback.print_exc()
            print(f"failed: {job.folder}: {error}", file=sys.stderr, flush=True)
            self.failed.append(job)
            self.claims.fail()
        else:
            seconds = time.monotonic() - begun
            if job.program == "train":
                self._note_beside(job, beside)
            self._finish(job)
            self.look_again()
            left = len(self.waiting) - 1
            print(f"{job.folder}: {seconds:.1f} s, {left} jobs left", flush=True)
        if job in self.failed and gpu_is_lost():
            start_again(self.claims.call, deadline)
        self.claims.release()


def _makers(job: Job) -> set[str]:
    """Folders of what it reads."""
    return {str(Path(name).parent) for name in job.inputs}
