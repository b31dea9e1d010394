"""What must be there before a job starts: where raw data are, and whether there is a GPU."""

import hashlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

DEMO = "demo"
# Keys of a dataset file that describe a cohort but do not change what is extracted from it.
DESCRIPTIVE = ("title", "task", "how_to_get", "extract_batches", "only_where_named")
# Folders of a BIDS data set without series, by far the most of its files.
_UNREAD = ("anat", "figures", "log", "dwi", "fmap", "perf")
_PHENOTYPES = "ABIDE_pcp/Phenotypic_V1_0b_preprocessed1.csv"


# Of NVIDIA's driver, of it inside Windows, of Jetson boards, and of AMD's driver.
_GPU_FILES = ("nvidia[0-9]*", "dxg", "nvhost-gpu", "kfd")


@cache
def has_gpu() -> bool:
    """Whether this machine shows a GPU to its jobs; torch, which knows best, is not asked."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    if any(file for name in _GPU_FILES for file in Path("/dev").glob(name)):
        return True
    program = shutil.which("nvidia-smi")
    if program is None:
        return False
    try:
        listed = subprocess.run([program, "-L"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "GPU " in listed.stdout


def described(dataset: dict) -> dict:
    """The part of a dataset file that the imaging programs work by."""
    return {key: value for key, value in dataset.items() if key not in DESCRIPTIVE}


def table_path(dataset: dict, data_dir: str) -> Path:
    """The table that lists the subjects of a cohort."""
    source = dataset["source"]
    return Path(data_dir) / source["folder"] / source.get("participants", _PHENOTYPES)


def subject_tables(dataset: dict, data_dir: str) -> list[str]:
    """The table of subjects and those that are joined to it, as far as they are there."""
    folder = Path(data_dir) / dataset["source"]["folder"]
    further = [folder / table["file"] for table in dataset["source"].get("tables", ())]
    return [str(path) for path in (table_path(dataset, data_dir), *further) if path.is_file()]


def knows_motion(dataset: dict) -> bool:
    """Whether the mean FD of subjects may be known: by a column, or by files of confounds."""
    return "mean_fd" in dataset["columns"] or dataset["source"]["kind"] == "bids"


def raw_version(dataset: dict, data_dir: str) -> str:
    """A text that changes with the content of the tables, or with size or time of another file.

    The files of a cohort's folder count, but for folders that no reader opens. Links are followed.
    """
    source, tables = dataset["source"], subject_tables(dataset, data_dir)
    folder = str(Path(data_dir) / source["folder"])
    # Files that the release has for other atlases lie beside each other.
    part, unread = source.get("derivative", ""), _UNREAD if source["kind"] == "bids" else ()
    lines = [content(path) for path in tables]
    waiting, seen = [folder], set()
    for entry in _entries(waiting):
        try:
            about = entry.stat()
        except OSError:
            continue
        if stat.S_ISDIR(about.st_mode):
            # A link may lead back to where it lies.
            place = (about.st_dev, about.st_ino)
            if place not in seen and entry.name not in unread:
                seen.add(place)
                waiting.append(entry.path)
        elif part in entry.name and entry.path not in tables:
            name = entry.path.removeprefix(folder)
            lines.append(f"{name} {about.st_size} {about.st_mtime_ns}")
    return hashlib.sha256("\n".join(sorted(lines)).encode(errors="surrogateescape")).hexdigest()


def _entries(folders: list[str]) -> Iterator[os.DirEntry]:
    """What lies in folders, whose list may grow meanwhile; hidden and unreadable ones are not."""
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            yield from (entry for entry in entries if not entry.name.startswith("."))


def content(path: str) -> str:
    """The checksum of a small file, empty if there is none."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def atlas_files(dataset: dict, data_dir: str) -> list[str]:
    """The files that name and place the regions of series, where the dataset has any."""
    folder, rois = Path(data_dir) / dataset["source"]["folder"], dataset["rois"]
    paths = [folder / rois[key] for key in ("labels", "image") if key in rois]
    return [str(path) for path in paths if path.is_file()]


def missing_data(dataset: dict, data_dir: str) -> str | None:
    """A paragraph on data that are not there and how to get them; None if they are."""
    path = table_path(dataset, data_dir)
    if dataset["cohort"] == DEMO or path.exists():
        return None
    folder = Path(data_dir) / dataset["source"]["folder"]
    what = f"the file {path}" if folder.is_dir() else f"the folder {folder}"
    return f"{dataset['cohort']}: {what} does not exist.\n  {dataset['how_to_get'].strip()}"
