"""Which finished results go back: those that no earlier archive holds."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from brio_core.remote.archive import write_parts
from brio_core.remote.checks import DIAGNOSTICS, RUN_FILES
from brio_core.remote.plan import read_plan
from brio_core.reporting.diagnostics import NUMBERS
from brio_core.system.files import read_json, write_json

MODELS = "models.pt"
PACKED = "packed.json"


def result_names(folder: str) -> list[str]:
    """Names of the files that a job may leave in its folder."""
    if folder.startswith("runs/"):
        return [*RUN_FILES, MODELS]
    return sorted({*DIAGNOSTICS, *(f"{name}.csv" for name in NUMBERS)})


def pack_new(
    plan_path: Path,
    root: Path,
    programs: Mapping[str, ModuleType],
    out: Path,
    part_megabytes: float,
    models: Sequence[str] = (),
    everything: bool = False,
) -> list[Path]:
    """Pack finished jobs that no earlier call has packed; models of those that ``models`` match.

    A cell that went without its models goes again when these are wanted.
    """
    plan, record = read_plan(plan_path), plan_path.with_name(PACKED)
    plan.check_patterns("--models-of", models)
    before = read_json(record) if record.exists() and not everything else {}
    unfinished = {job.folder for job in plan.unfinished(root, programs)}
    groups, stamps = {}, {}
    for job in plan.jobs:
        if job.folder in unfinished:
            continue
        names = result_names(job.folder)
        if not job.matches(models):
            names = [name for name in names if name != MODELS]
        files = [root / job.folder / name for name in names if (root / job.folder / name).is_file()]
        # The time of the last file tells a job that was done anew.
        own = {job.folder: (root / job.folder / "meta.json").stat().st_mtime}
        own |= {f"{job.folder}/{MODELS}": own[job.folder] for file in files if file.name == MODELS}
        if any(before.get(name) != stamp for name, stamp in own.items()):
            groups[job.folder] = files
            stamps |= own
    if not groups:
        return []
    parts = write_parts(groups, root, out, part_megabytes * 1e6)
    write_json(record, before | stamps)
    return parts
