"""What another machine is to compute: the very commands of the rules, their files, their order."""

import os
import shutil
from argparse import Namespace
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from types import ModuleType

from brio_core.cohorts.checksums import checksum
from brio_core.remote.checks import check_cell, check_diagnostics
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json
from brio_core.system.versions import ROOT, program_version

KEYS = ("results", "config", "jobs", "done", "inputs", "seconds")
CODE = ("brio_core", "scripts")


@dataclass(frozen=True)
class Job:
    """One job of a rule; paths are relative to the folder of results."""

    folder: str
    """Where its results go, which is also its name."""
    program: str
    words: tuple[str, ...]
    """The command line of the rule, without the name of the program."""
    code: str
    methods: tuple[str, ...]
    gpu: bool
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    source: str = ""
    """Like ``code``, but compared byte by byte: the other machine may have another Python."""

    @property
    def kind(self) -> str:
        """Jobs that take about the same time: a method on a cohort under a protocol."""
        return " ".join([self.program, *Path(self.folder).parts[1:3], *self.methods])

    @classmethod
    def of(cls, record: dict) -> "Job":
        """From JSON, which has no tuples."""
        values = {key: tuple(v) if isinstance(v, list) else v for key, v in record.items()}
        return cls(**values)

    def matches(self, patterns: Iterable[str]) -> bool:
        """By a part of the folder, such as the variant, or by the folder as a whole."""
        return any(_matches(self.folder, pattern) for pattern in patterns)


@dataclass(frozen=True)
class Plan:
    """Jobs in the order in which they should be done."""

    results: str
    """The folder of results in the paths of the commands."""
    config: dict
    jobs: tuple[Job, ...]
    done: tuple[str, ...]
    """Jobs of the configuration that were up to date when the plan was made."""
    inputs: dict[str, str]
    """Checksums of the files that no job of the plan makes."""
    seconds: dict[str, float]
    """The longest that jobs of a kind took so far, on a GPU where they use one."""

    def check_patterns(self, option: str, patterns: Iterable[str]) -> None:
        """Refuse a pattern that means no job, neither one to do nor one that is done."""
        folders = (*self.done, *(job.folder for job in self.jobs))
        for pattern in patterns if folders else ():
            if not any(_matches(folder, pattern) for folder in folders):
                raise BrioError(
                    f"{option} {pattern!r} matches no job of the plan; 'work --list' shows them"
                )

    def wanted(self, job: Job, root: Path, programs: Mapping[str, ModuleType]) -> Namespace:
        """Parsed arguments of a job whose folder of results is ``root``."""
        return programs[job.program].parse(self.words(job, root))

    def words(self, job: Job, root: Path) -> list[str]:
        """The command line of a job whose folder of results is ``root``."""
        start = f"{self.results}/"
        return [
            str(root / word.removeprefix(start)) if word.startswith(start) else word
            for word in job.words
        ]

    def check(
        self,
        job: Job,
        root: Path,
        programs: Mapping[str, ModuleType],
        folders: Mapping[str, Path] | None = None,
        same_inputs: bool = True,
    ) -> None:
        """Raise unless the results of a job are complete and are what the plan asks for.

        ``folders`` says where the results of some jobs are if not below ``root``.
        """
        wanted = self.wanted(job, root, programs)
        where = {Path(root / name): folder for name, folder in (folders or {}).items()}
        wanted.out_dir = where.get(wanted.out_dir, wanted.out_dir)
        if job.program == "train":
            check_cell(wanted, same_inputs)
        else:
            wanted.run = where.get(wanted.run, wanted.run)
            check_diagnostics(wanted, same_inputs)

    def is_finished(self, job: Job, root: Path, programs: Mapping[str, ModuleType]) -> bool:
        """Whether valid results are there already."""
        try:
            self.check(job, root, programs)
        except BrioError:
            return False
        return True

    def unfinished(self, root: Path, programs: Mapping[str, ModuleType]) -> list[Job]:
        """Jobs without valid results, those made of theirs, and cells whose models they need."""
        waiting = {job.folder for job in self.jobs if not self.is_finished(job, root, programs)}
        while True:
            jobs = [job for job in self.jobs if job.folder in waiting]
            made = {name for job in jobs for name in job.outputs}
            needed = {name for job in jobs for name in job.inputs}
            more = {
                job.folder
                for job in self.jobs
                if not made.isdisjoint(job.inputs)
                or any(name in needed and not (root / name).exists() for name in job.outputs)
            }
            if more <= waiting:
                return jobs
            waiting |= more


def _matches(folder: str, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in (folder, *Path(folder).parts))


def read_plan(path: Path) -> Plan:
    """plan.json."""
    values = read_json(path, *KEYS)
    jobs = tuple(map(Job.of, values["jobs"]))
    rest = (values["inputs"], values["seconds"])
    return Plan(values["results"], values["config"], jobs, tuple(values["done"]), *rest)


def prepare(jobs_file: Path, programs: Mapping[str, ModuleType], folder: Path) -> Plan:
    """Fill ``folder`` with all that the other machine needs: plan, prepared files, code."""
    values = read_json(jobs_file, "results", "config", "jobs")
    jobs = tuple(map(Job.of, values["jobs"]))
    results = Path(values["results"])
    everything = Plan(values["results"], values["config"], jobs, (), {}, {})
    waiting = [
        replace(job, source=program_version(job.program, job.methods, exact=True))
        for job in everything.unfinished(results, programs)
    ]
    names = {job.folder for job in waiting}
    made = {name for job in waiting for name in job.outputs}
    needed = {name: None for job in waiting for name in job.inputs if name not in made}
    done = [job for job in jobs if job.folder not in names]
    plan = Plan(
        values["results"],
        values["config"],
        tuple(waiting),
        tuple(job.folder for job in done),
        {name: checksum(results / name) for name in needed},
        _seconds(done, results),
    )
    for name in plan.inputs:
        _link(results / name, folder / "results" / name)
    for name in CODE:
        shutil.rmtree(folder / name, ignore_errors=True)
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    write_json(folder / "plan.json", asdict(plan))
    return plan


def _seconds(done: Iterable[Job], results: Path) -> dict[str, float]:
    """What jobs have taken where they were done, for the time of those to come."""
    longest: dict[str, float] = {}
    for job in done:
        meta = read_json(results / job.folder / "meta.json")
        if not (job.gpu and meta["device"].upper().startswith("CPU")):
            longest[job.kind] = max(meta["seconds"], longest.get(job.kind, 0.0))
    return longest


def _link(source: Path, target: Path) -> None:
    """The same file under a second name, without a copy; by reference to another file system."""
    if target.exists() and target.samefile(source):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        target.symlink_to(source.resolve())


def check_code(jobs: Iterable[Job], same_machine: bool) -> None:
    """Raise if the code that is here is not what the plan was made with."""
    for job in jobs:
        planned = job.code if same_machine else job.source
        if program_version(job.program, job.methods, exact=not same_machine) != planned:
            raise BrioError(
                f"the code of scripts/{job.program}.py with {', '.join(job.methods)} in {ROOT} is "
                "not what the plan was made with; use the code that lies beside the plan, or make "
                "the plan again with 'snakemake handover'"
            )
