"""What another machine is to compute, and doing it there within a given time.

A plan has commands of the rules, and what their results must say.
"""

import shutil
import sys
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote

from brio_core.cohorts.splits import read_split
from brio_core.cohorts.stores import checksum, input_checksums
from brio_core.remote.worker import Worker
from brio_core.system.errors import BrioError
from brio_core.system.files import ROOT, atomic, locked, read_json, write_json

MODELS = "models.pt"


@dataclass(frozen=True)
class Job:
    """One job of a rule, named by the folder of its results; paths are below that of all."""

    folder: str
    program: str
    arguments: Sequence[str]
    inputs: dict[str, str]  # as the rule names them
    expected: dict  # what meta.json of its results must say
    run: str = ""  # the folder of the run that is diagnosed
    done: bool = False  # whether its results were there when the plan was made

    @property
    def on_gpu(self) -> bool:
        return ("--device", "cuda") in pairwise(self.arguments)

    def expected_of(self, root: Path) -> dict:
        """What meta.json must say of results that are made of the files below ``root``."""
        files = {name: root / path for name, path in self.inputs.items()}
        return self.expected | {
            "split_checksum": read_split(files["split"])["checksum"],
            "inputs": input_checksums(files["fc"].parent, files["block_length"]),
        }

    def check(self, root: Path, folder: Path) -> None:
        """Raise unless meta.json in ``folder``, which is written last, says what it must."""
        meta = read_json(folder / "meta.json")
        for key, value in self.expected_of(root).items():
            found = meta.get(key)
            if value in (found, meta.get("accepted", {}).get(key)):
                continue
            what = f"{key!r} {found!r} instead of {value!r}"
            if isinstance(value, dict) and isinstance(found, dict):
                other = min(name for name in value | found if value.get(name) != found.get(name))
                what = f"another {other!r} in {key!r}"
            raise BrioError(f"{folder} was made with {what}; make it again by a new plan")

    def is_finished(self, root: Path) -> bool:
        """Whether valid results lie below ``root``, of a run with its models."""
        try:
            self.check(root, root / self.folder)
        except BrioError:
            return False
        return bool(self.run) or (root / self.folder / MODELS).exists()


@dataclass(frozen=True)
class Plan:
    """Jobs in the order in which they should be done; a run comes before its diagnostics."""

    results: str  # the folder here; on the other machine it is called 'results'
    config: dict
    jobs: Sequence[Job]
    files: dict[str, str]  # checksums of code and prepared files beside the plan
    configfiles: Sequence[str]  # beside which files of a study are found

    def unfinished(self, root: Path) -> list[Job]:
        """Jobs without valid results below ``root``, with the runs whose models they need."""
        waiting = set()
        for job in self.jobs:
            try:
                job.check(root, root / job.folder)
            except BrioError:
                waiting.add(job.folder)
        for job in self.jobs:
            if job.run and not waiting.isdisjoint((job.folder, job.run)):
                waiting.add(job.folder)
                if not (root / job.run / MODELS).exists():
                    waiting.add(job.run)
        return [job for job in self.jobs if job.folder in waiting]

    def choose(self, patterns: Sequence[str]) -> list[Job]:
        """Jobs for the other machine, in the order of the patterns; a run before its diagnostics.

        A pattern fits parts of a folder: cohort, variant, seed.
        """
        chosen: dict[str, Job] = {}
        for pattern in patterns:
            found = [job for job in self.jobs if fnmatchcase(f"/{job.folder}/", f"*/{pattern}/*")]
            if not found:
                raise BrioError(
                    f"--only {pattern!r} matches no job of the plan; '--minutes 0' lists the jobs"
                )
            chosen |= {job.folder: job for job in found if job.folder not in chosen}
        runs_first = [one for job in chosen.values() for one in (chosen.get(job.run), job) if one]
        return [job for job in {job.folder: job for job in runs_first}.values() if not job.done]


def read_plan(path: Path) -> Plan:
    """plan.json, or jobs.json as the workflow writes it."""
    values = read_json(path, "results", "config", "jobs", "files", "configfiles")
    try:
        return Plan(**values | {"jobs": [Job(**job) for job in values["jobs"]]})
    except TypeError as error:
        raise BrioError(f"{path} is no plan ({error}); make it by 'snakemake remote'") from None


def prepare(plan_path: Path) -> Plan:
    """Write the plan, and beside it all that the other machine needs; jobs.json is there."""
    folder, plan = plan_path.parent, read_plan(plan_path.with_name("jobs.json"))
    results = Path(plan.results)
    made = {job.folder for job in plan.unfinished(results)}
    needed = {name for job in plan.jobs if job.folder in made for name in job.inputs.values()}
    needed = sorted(name for name in needed if str(Path(name).parent) not in made)
    files = [folder / "results" / name for name in needed]
    for name, path in zip(needed, files):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        # No second copy of large files: 'tar -h' packs what a link names.
        path.symlink_to((results / name).resolve())
    for name in ("brio_core", "scripts"):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        files += (folder / name).rglob("*.py")
    checksums = {str(path.relative_to(folder)): checksum(path) for path in files}
    jobs = [replace(job, done=job.folder not in made) for job in plan.jobs]
    plan = replace(plan, jobs=jobs, files=checksums)
    write_json(plan_path, asdict(plan))
    return plan


def check_files(plan: Plan, folder: Path, other_inputs: bool = False) -> None:
    """Raise if code or prepared files beside a plan are not those that it was made with."""
    for name, planned in plan.files.items():
        expected = not (other_inputs and name.startswith("results/"))
        if expected and checksum(folder / name) != planned:
            raise BrioError(f"{folder / name} is not that of the plan; copy it from there again")


def do_jobs(plan: Plan, folder: Path, jobs: Sequence[Job], seconds: float) -> list[str]:
    """Do jobs that are not done, and that no other call is doing; return those that failed."""
    deadline, root = time.monotonic() + seconds, folder / "results"
    unfinished = {job.folder: job for job in plan.unfinished(root) if not job.done}
    failed, worker = [], Worker(folder)
    try:
        for job in jobs:
            begun, run = time.monotonic(), unfinished.get(job.run)
            if job.folder not in unfinished or begun >= deadline:
                continue
            # Nothing can be made of a run that is still to be trained.
            if run and not run.is_finished(root):
                continue
            with _claimed(folder, job, worker) as ours:
                if not ours or job.is_finished(root):
                    continue
                # As Snakemake does with a folder that a job makes: nothing older may stay in it.
                # Nor may diagnostics of an older run stay beside the new one.
                for one in plan.jobs:
                    if one.run and job.folder in (one.run, one.folder):
                        shutil.rmtree(root / one.folder, ignore_errors=True)
                try:
                    if not _do(job, root, worker, deadline - begun):
                        print(f"time is up: {job.folder} continues next time", flush=True)
                        break
                    print(f"{job.folder}: {time.monotonic() - begun:.1f} s", flush=True)
                except BrioError as error:
                    print(f"failed: {job.folder}: {error}", file=sys.stderr, flush=True)
                    failed.append(job.folder)
    finally:
        worker.end()
    return failed


@contextmanager
def _claimed(folder: Path, job: Job, worker: Worker) -> Iterator[bool]:
    """Whether this call may do a job, which no other call does then."""
    path = folder / "claims" / quote(job.folder, safe="")
    path.parent.mkdir(exist_ok=True)
    with path.open("a") as file:
        try:
            yield locked(file.fileno())
        except BaseException:
            # Nobody else may begin before the worker has ended.
            worker.end()
            raise


def _do(job: Job, root: Path, worker: Worker, seconds: float) -> bool:
    """Do a job; False if the time did not suffice."""
    if not job.on_gpu:
        # Of a process on a CPU only the memory of all its jobs is known.
        worker.end()
    code = worker.do(job.program, job.arguments, seconds)
    if code is None:
        worker.end()
    if code:
        raise BrioError(f"exit code {code}, see above")
    if code == 0:
        job.check(root, root / job.folder)
    return code == 0


def pack(jobs: Sequence[Job], root: Path, out: Path, models: bool) -> None:
    """Write the results of jobs to a zip file, trained models only if they are wanted."""
    with atomic(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in [path for job in jobs for path in sorted((root / job.folder).iterdir())]:
            if path.is_file() and (models or path.name != MODELS):
                archive.write(path, path.relative_to(root))
