"""Which finished results go back: those that no earlier archive holds."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from brio_core.files import read_json, write_json
from brio_core.handover.archive import write_parts
from brio_core.handover.checks import DIAGNOSTICS, RUN_FILES
from brio_core.handover.plan import read_plan
from brio_core.reporting.diagnostics import NUMBERS

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
    models: bool = False,
    everything: bool = False,
) -> list[Path]:
    """Pack finished jobs that no earlier call has packed; models only if they are wanted."""
    plan, record = read_plan(plan_path), plan_path.with_name(PACKED)
    before = read_json(record) if record.exists() and not everything else {}
    finished = {job.folder: root / job.folder for job in plan.jobs}
    for job in plan.unfinished(root, programs):
        del finished[job.folder]
    # The time of the last file tells a job that was done anew.
    stamps = {name: (folder / "meta.json").stat().st_mtime for name, folder in finished.items()}
    groups = {
        name: [
            folder / file
            for file in result_names(name)
            if (models or file != MODELS) and (folder / file).is_file()
        ]
        for name, folder in finished.items()
        if before.get(name) != stamps[name]
    }
    if not groups:
        return []
    parts = write_parts(groups, root, out, part_megabytes * 1e6)
    write_json(record, before | {name: stamps[name] for name in groups})
    return parts
