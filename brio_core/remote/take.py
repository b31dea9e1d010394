"""Take results back: check all of them, put them in place, and let Snakemake know."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from brio_core.cohorts.checksums import input_checksums
from brio_core.remote.archive import unpack
from brio_core.remote.checks import RUN_FILES
from brio_core.remote.pack import MODELS, result_names
from brio_core.remote.plan import Job, Plan, check_code, read_plan
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json, write_json
from brio_core.system.versions import ROOT, program_version


def take(
    archives: Sequence[Path],
    plan_path: Path,
    programs: Mapping[str, ModuleType],
    same_inputs: bool = True,
    same_code: bool = True,
) -> None:
    """Check everything in the archives; only if all is well, put it in place."""
    plan_path = plan_path.resolve()
    plan, results = read_plan(plan_path), plan_path.parent.parent
    directory = _directory(plan, results)
    if any((directory / ".snakemake" / "locks").glob("*")):
        raise BrioError(
            f"Snakemake is at work in {directory}; take the results when it is done, or after "
            "'snakemake --unlock' if none is running"
        )
    allowed = {name: result_names(name) for name in (*plan.done, *(j.folder for j in plan.jobs))}
    with tempfile.TemporaryDirectory(dir=results, prefix=".handover-") as staging:
        found: dict[str, Path] = {}
        for number, path in enumerate(archives):
            part = Path(staging) / str(number)
            found |= {name: part / name for name in unpack(path, allowed, part)}
        jobs = [job for job in plan.jobs if job.folder in found]
        if same_code:
            check_code(jobs, same_machine=True)
        waiting = plan.unfinished(results, programs)
        kept = [job for job in jobs if job not in waiting]
        # Diagnostics must be of the cells that will be here, those that stay and those that come.
        new = {job.folder: found[job.folder] for job in jobs if job in waiting}
        for job in jobs:
            places = new | {job.folder: found[job.folder]}
            plan.check(job, results, programs, places, same_inputs)
            _check_origin(job, found[job.folder])
        for job in jobs:
            _accept(job, plan.wanted(job, results, programs), found[job.folder])
            _place(found[job.folder], results / job.folder, only_models=job in kept)
        _record(plan, jobs, directory, Path(staging))
    print(f"{len(jobs) - len(kept)} jobs taken, {len(kept)} were here already", flush=True)
    left = [job for job in plan.jobs if job.folder not in found]
    left = [job for job in left if not plan.is_finished(job, results, programs)]
    if left:
        print(f"{len(left)} jobs of the plan are not done yet, the first is {left[0].folder}")
    _tell_missing_models(left, results)


def _directory(plan: Plan, results: Path) -> Path:
    """The folder that Snakemake works in."""
    relative = Path(plan.results)
    if relative.is_absolute():
        return Path.cwd()
    directory = results.parents[len(relative.parts) - 1]
    if directory / relative != results:
        raise BrioError(
            f"the plan belongs into {relative}/handover, but lies in {results}/handover; name the "
            "plan.json that 'snakemake handover' has written"
        )
    return directory


def _check_origin(job: Job, folder: Path) -> None:
    """What the checks of results that are here already do not look at."""
    meta, path = read_json(folder / "meta.json"), folder / MODELS
    if "accepted" in meta:
        raise BrioError(
            f"{job.folder} says itself that it was accepted in spite of other code or files; only "
            "the machine that takes it may say so"
        )
    if not path.exists():
        return
    from brio_core.training.results import read_models

    models = read_models(path)
    folds = [fold["name"] for fold in meta["folds"]]
    if models.method.name not in job.methods or list(models.names) != folds:
        raise BrioError(f"{MODELS} of {job.folder} holds models of other methods or folds")


def _accept(job: Job, wanted: Namespace, folder: Path) -> None:
    """Write down for which files and code a result was accepted where it was made with others."""
    path = folder / "meta.json"
    meta = read_json(path)
    here = {
        "inputs": input_checksums(wanted.cohort_dir, wanted.block_length),
        "code": program_version(job.program, job.methods),
    }
    other = {key: value for key, value in here.items() if meta[key] != value}
    if other:
        write_json(path, meta | {"accepted": other})


def _place(source: Path, target: Path, only_models: bool) -> None:
    """Move files to where they belong; meta.json, which makes them valid, comes last."""
    names = [path.name for path in source.iterdir() if path.name != "meta.json"]
    if only_models:
        same = (source / RUN_FILES[0]).exists() and (
            (source / RUN_FILES[0]).read_bytes() == (target / RUN_FILES[0]).read_bytes()
        )
        if same and MODELS in names:
            os.replace(source / MODELS, target / MODELS)
        return
    # Nothing of an earlier result may stay beside the new one, above all no models.
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for name in [*sorted(names), "meta.json"]:
        os.replace(source / name, target / name)


def _record(plan: Plan, jobs: Sequence[Job], directory: Path, staging: Path) -> None:
    """Have Snakemake record by which parameters the files were made.

    Without a record it would look at times only, and would not notice later that settings or code
    have changed; a record of an earlier run with other settings would make it train again.
    """
    if not jobs:
        return
    config = staging / "config.yaml"
    config.write_text(json.dumps(plan.config), encoding="utf-8")
    targets = [f"{plan.results}/{job.outputs[0]}" for job in jobs]
    command = [sys.executable, "-m", "snakemake", *targets, "--touch", "--force", "--cores", "1"]
    # What the results were made of is not touched, whatever Snakemake thinks of it.
    command += ["--allowed-rules", "train", "diagnose", "--snakefile", str(ROOT / "Snakefile")]
    command += ["--directory", str(directory), "--configfile", str(config)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise BrioError(
            "the results are in place, but Snakemake could not record them (its words are above); "
            "take them again when that is solved"
        )


def _tell_missing_models(left: Sequence[Job], results: Path) -> None:
    undone = {job.folder for job in left}
    needed = {name for job in left for name in job.inputs if Path(name).name == MODELS}
    missing = [
        name
        for name in needed
        if str(Path(name).parent) not in undone and not (results / name).exists()
    ]
    if missing:
        print(
            f"diagnostics need models of {len(missing)} cells that were not brought back; make "
            "them on the other machine too, or bring the models with 'pack --models', else "
            "Snakemake trains these cells again"
        )
