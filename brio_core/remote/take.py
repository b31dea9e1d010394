"""Take results back: check all of them, put them in place, and let Snakemake know."""

import json
import os
import platform
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from brio_core.cohorts.splits import read_split
from brio_core.evaluation.diagnostics.run import stored_auc
from brio_core.remote.plan import MODELS, Job, Plan, read_plan
from brio_core.reporting.external import tested_rows
from brio_core.reporting.results import read_history, read_run, read_table
from brio_core.system.errors import BrioError
from brio_core.system.files import ROOT, read_json, write_json
from brio_core.system.versions import program_version

# Where results are unpacked: the process follows, and a random part.
_OURS = f".remote-{re.sub('[^A-Za-z0-9]', '', platform.node())}-"
# Results are packed to a tenth; a bomb to a thousandth.
MOST_DENSE = 200
PACK_AGAIN = "pack the results again with 'remote.py work --pack'"
# What readers make of files that are not what they should be.
DAMAGED = (
    ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
    struct.error,
)  # fmt: skip


def take(archives: Sequence[Path], plan_path: Path, accept: Sequence[str] = ()) -> str:
    """Put results in place if all of them are right; ``accept`` are keys that may differ."""
    if any(Path(".snakemake", "locks").glob("*")):
        raise BrioError("Snakemake is at work here; wait, or 'snakemake --unlock' if it is not")
    plan = read_plan(plan_path)
    for job in plan.jobs:
        job.expected["code"] = program_version(job.program, [job.expected["method"]])
    results = Path(plan.results)
    remove_leftovers(results)
    with tempfile.TemporaryDirectory(dir=results, prefix=f"{_OURS}{os.getpid()}-") as staging:
        found: dict[str, Path] = {}
        for path in archives:
            found |= _unpack(path, plan.jobs, Path(tempfile.mkdtemp(dir=staging)))
        jobs = [job for job in plan.jobs if job.folder in found]
        new = plan.unfinished(results)
        # Of a run that is here already, models may still come.
        new += [job for job in jobs if (found[job.folder] / MODELS).exists()]
        places = {job.folder: found[job.folder] for job in jobs if job in new}
        for job in jobs:
            if job.folder in places:
                try:
                    _check(job, results, places, accept)
                except DAMAGED as error:
                    what = f"{type(error).__name__}: {error}"
                    raise BrioError(f"{job.folder} is damaged ({what}); fetch it again") from None
        for name, folder in places.items():
            # Nothing of an earlier result may stay beside the new one, above all no models.
            shutil.rmtree(results / name, ignore_errors=True)
            (results / name).parent.mkdir(parents=True, exist_ok=True)
            folder.rename(results / name)
        _record(plan, jobs, Path(staging))
    return f"{len(places)} jobs taken, {len(plan.unfinished(results))} of the plan are left"


def remove_leftovers(results: Path) -> None:
    """Delete what takes on this machine have unpacked that were killed since."""
    for folder in results.glob(f"{_OURS}*-*"):
        number = folder.name.removeprefix(_OURS).partition("-")[0]
        if number.isdecimal() and not Path("/proc", number).exists():
            shutil.rmtree(folder, ignore_errors=True)


def _unpack(path: Path, jobs: Sequence[Job], target: Path) -> dict[str, Path]:
    """Folders with the results of jobs that an archive holds; it may hold nothing else."""
    folders = {job.folder: target / job.folder for job in jobs}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                folder, _, name = member.filename.rpartition("/")
                # The upper half is the kind of a file in Unix, if the archive tells it.
                plain = stat.S_IFMT(member.external_attr >> 16) in (0, stat.S_IFREG)
                plain &= member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
                result = Path(name).suffix in (".csv", ".json", ".pt")
                if not (plain and result and folder in folders):
                    raise BrioError(
                        f"{path}: {member.filename} is no plain file of a planned job; {PACK_AGAIN}"
                    )
            # Nothing is unpacked beyond the size that it declares.
            size = sum(one.file_size for one in archive.infolist())
            if size > shutil.disk_usage(target).free:
                raise BrioError(f"{path} holds more than the disk has room for; make room")
            if size > MOST_DENSE * path.stat().st_size:
                raise BrioError(
                    f"{path} holds {size:,} bytes, more than results can be packed in; {PACK_AGAIN}"
                )
            archive.extractall(target)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, *DAMAGED) as error:
        raise BrioError(f"{path} cannot be read ({error}); fetch it again") from None
    return {name: folder for name, folder in folders.items() if folder.exists()}


def _check(job: Job, results: Path, places: dict[str, Path], accept: Sequence[str]) -> None:
    """Check a result; if it was made with others, meta.json tells for what it was accepted."""
    folder, expected = places[job.folder], job.expected_of(results)
    meta = read_json(folder / "meta.json")
    other = {key: expected[key] for key in accept if meta.get(key) != expected[key]}
    # Only the machine that takes a result may accept it.
    write_json(folder / "meta.json", meta | {"accepted": other})
    job.check(results, folder)
    if not job.run:
        tested_rows(folder / "predictions.csv", read_split(results / job.inputs["split"]))
        read_run(folder)
        read_history(folder)
        return
    # Diagnostics must be of the run that will be here.
    run = places.get(job.run, results / job.run)
    tested = {fold: f"{auc:.9g}" for fold, auc in stored_auc(run / "predictions.csv").items()}
    table = read_table(folder / "folds.csv", ("fold", "test_auc"))
    if dict(zip(table["fold"], table["test_auc"])) != tested:
        raise BrioError(
            f"{folder}/folds.csv was made of another run than {run}; diagnose it again there"
        )


def _record(plan: Plan, jobs: Sequence[Job], staging: Path) -> None:
    """Have Snakemake record by which parameters files were made, so that it notices changes."""
    config = (staging / "config.yaml").resolve()
    config.write_text(json.dumps(plan.config), encoding="utf-8")
    names = [job.folder if job.run else f"{job.folder}/predictions.csv" for job in jobs]
    command = [sys.executable, "-m", "snakemake", *(f"{plan.results}/{name}" for name in names)]
    # What the results were made of is not touched, whatever Snakemake thinks of it.
    command += ["--touch", "--force", "--allowed-rules", "train", "diagnose", "--cores", "1"]
    command += ["--snakefile", f"{ROOT}/Snakefile"]
    command += ["--configfile", *plan.configfiles, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BrioError(f"Snakemake cannot record results; take them again. {done.stderr[-900:]}")
