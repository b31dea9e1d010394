"""Do the jobs of a plan one after the other, within a given time, and pack their results."""

import os
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

from brio_core.cohorts.stores import checksum
from brio_core.remote.plan import MODELS, Job, Plan
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic


def check_files(plan: Plan, folder: Path, other_inputs: bool = False) -> None:
    """Raise if code or prepared files beside a plan are not those that it was made with."""
    for name, planned in plan.files.items():
        expected = not (other_inputs and name.startswith("results/"))
        if expected and checksum(folder / name) != planned:
            raise BrioError(f"{folder / name} is not that of the plan; copy it from there again")


def do_jobs(plan: Plan, folder: Path, jobs: Sequence[Job], seconds: float) -> list[str]:
    """Do jobs that are not done, each in a process of its own; return those that failed."""
    deadline, root = time.monotonic() + seconds, folder / "results"
    unfinished = {job.folder for job in plan.unfinished(root) if not job.done}
    failed = []
    for job in jobs:
        begun = time.monotonic()
        # Nothing can be made of a run that is still to be trained.
        if job.folder not in unfinished or job.run in unfinished or begun >= deadline:
            continue
        # As Snakemake does with a folder that a job makes: nothing older may stay in it.
        if job.run:
            shutil.rmtree(root / job.folder, ignore_errors=True)
        command = [sys.executable, f"scripts/{job.program}.py", *job.arguments]
        child = subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)})
        try:
            if code := child.wait(deadline - begun):
                raise BrioError(f"exit code {code}, see above")
            job.check(root, root / job.folder)
            unfinished.remove(job.folder)
            print(f"{job.folder}: {time.monotonic() - begun:.1f} s", flush=True)
        except subprocess.TimeoutExpired:
            print(f"time is up: {job.folder} continues next time", flush=True)
        except BrioError as error:
            print(f"failed: {job.folder}: {error}", file=sys.stderr, flush=True)
            failed.append(job.folder)
        finally:
            # Programs that are told to end clean up, and continue from their last checkpoint.
            child.terminate()
            child.wait()
    return failed


def pack(jobs: Sequence[Job], root: Path, out: Path, models: bool) -> None:
    """Write the results of jobs to a zip file, trained models only if they are wanted."""
    with atomic(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [path for job in jobs for path in sorted((root / job.folder).iterdir())]:
            if path.is_file() and (models or path.name != MODELS):
                archive.write(path, path.relative_to(root))
