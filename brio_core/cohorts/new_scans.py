"""Scans that belong to no cohort: a folder of ROI series, a BIDS-derivatives tree, a series.h5."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from brio_core.cohorts.cohort import covariates_of
from brio_core.cohorts.readers.bids import BidsReader
from brio_core.cohorts.readers.series import SERIES_ENDINGS, series_scan
from brio_core.cohorts.scan import Scan, Unusable
from brio_core.cohorts.stores import read_series
from brio_core.cohorts.tables import MISSING, read_table
from brio_core.system import sealed
from brio_core.system.errors import BrioError

# What a table of people may call its columns, beside what the bundle's own cohort calls them.
COLUMNS = {
    "subject": ("subject", "participant_id"),
    "label": ("label", "diagnosis"),
    "age": ("age",),
    "sex": ("sex",),
    "mean_fd": ("mean_fd",),
    "tr": ("tr", "repetition_time"),
}
# Names have other dots, too: ro.01.tsv and ro.02.tsv are two subjects.
_ENDING = re.compile(f"({'|'.join(map(re.escape, SERIES_ENDINGS))})$", re.IGNORECASE)

# Processes that read text, which threads of Python would do in turn; each is worth so many files.
MOST_PROCESSES, FILES_EACH = 8, 20


@dataclass(frozen=True)
class NewScan:
    """One scan with the TR that its own files tell, or why there is none."""

    subject: str
    scan: Scan | Unusable
    tr: float | None = None


def read_new_scans(
    path: Path,
    dataset: dict,
    other: Iterable[Path] = (),
    meanwhile: Callable[[], None] = lambda: None,
) -> list[NewScan]:
    """All scans of a place, by subject; files in ``other`` are none.

    ``dataset`` is that of the bundle: images of a BIDS tree are read as its cohort's were.
    ``meanwhile`` is called while other processes read, where there are files enough for them.
    """
    if not path.exists():
        raise BrioError(f"{path} does not exist; name a folder of ROI series or a series.h5")
    if path.is_file() and not sealed.is_sealed(path):
        raise BrioError(f"{path} is one file; name its folder, or a series.h5 of the workflow")
    if path.is_file():
        found = list(_stored(path))
    elif (path / "dataset_description.json").exists() or any(path.glob("sub-*/**/func")):
        found = list(_bids(path, dataset, meanwhile))
    else:
        found = _each(_folder(path, set(other)), meanwhile)
    if not found:
        endings = " ".join(SERIES_ENDINGS)
        raise BrioError(f"{path} holds no ROI series; put one file per subject there ({endings})")
    names = [one.subject for one in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise BrioError(
            f"{path} has several scans of subject {twice}; leave one of them in the folder"
        )
    return found


def _stored(path: Path) -> Iterator[NewScan]:
    series = read_series(path)
    for row, subject in enumerate(series.subjects):
        values = np.array(series.scan(row))
        yield NewScan(subject, Scan(values, len(values), series.rois.names))


def _folder(path: Path, other: set[Path]) -> Iterator[tuple[str, Path]]:
    """One file per subject, which is called like the file without its ending."""
    skipped = {one.resolve() for one in other}
    for file in _series_files(path, "*"):
        subject = re.sub(_ENDING, "", file.name)
        if file.resolve() not in skipped and subject != "participants":
            yield subject, file


def _series_files(path: Path, pattern: str) -> list[Path]:
    """Names that begin with a dot are notes of other systems, such as ._sub-001.tsv of macOS."""
    files = (file for file in sorted(path.rglob(pattern)) if not file.name.startswith("."))
    return [file for file in files if re.search(_ENDING, file.name) and file.is_file()]


def _each(named: Iterable[tuple[str, Path]], meanwhile: Callable[[], None]) -> list[NewScan]:
    """The scans of files, in their order; many are read by several processes."""
    named = list(named)
    count = min(MOST_PROCESSES, os.cpu_count() or 1, len(named) // FILES_EACH)
    # Elsewhere a process has to import everything again.
    if count < 2 or sys.platform != "linux":
        return [_read(one) for one in named]
    # Ctrl-C is for this process alone; it ends the others.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(count, get_context("fork"), signal.signal, ignore)
    try:
        found = pool.map(_read, named, chunksize=FILES_EACH // 4)
        meanwhile()
        return list(found)
    except BrokenProcessPool:
        raise BrioError(
            f"the system ended a process that read {named[0][1].parent}, perhaps for want of "
            "memory; try fewer files at a time"
        ) from None
    finally:
        # Whoever stops does not wait for files that nobody has begun to read.
        pool.shutdown(cancel_futures=True)


def _read(named: tuple[str, Path]) -> NewScan:
    subject, file = named
    try:
        return NewScan(subject, series_scan(file))
    except Unusable as unusable:
        return NewScan(subject, unusable)


def _bids(path: Path, dataset: dict, meanwhile: Callable[[], None]) -> Iterator[NewScan]:
    if dataset.get("source", {}).get("kind") == "bids":
        yield from _like_cohort(path, dataset)
        return
    files = _series_files(path, "*_timeseries.*")
    files = [file for file in files if "desc-confounds" not in file.name]
    if not files:
        raise BrioError(
            f"{path} is a BIDS tree without ROI series (*_timeseries.tsv), and the bundle was "
            "trained on ROI series; extract those of its atlas first"
        )
    yield from _each(((file.name.partition("_")[0], file) for file in files), meanwhile)


def _like_cohort(path: Path, dataset: dict) -> Iterator[NewScan]:
    """Images or series of a tree, by the very steps that the bundle's cohort has gone through."""
    direct = any(path.glob("sub-*"))
    source = {**dataset["source"], "folder": path.name}
    source |= {"derivatives": "."} if direct else {}
    reader = BidsReader({**dataset, "source": source}, path.absolute().parent)
    reader.check()
    for folder in sorted((reader.root / source["derivatives"]).glob("sub-*")):
        if not folder.is_dir():
            continue
        try:
            paths = reader.scan_paths({dataset["columns"]["subject"]: folder.name})
            if missing := next((one for one in paths if not one.exists()), None):
                raise Unusable(f"missing file: {missing.name}")
            tr = reader.repetition_time(paths[0])
            yield NewScan(folder.name, reader.read_runs(paths, tr), tr)
        except Unusable as unusable:
            yield NewScan(folder.name, unusable)


@dataclass(frozen=True)
class People:
    """What a table tells about the subjects of some scans; unknown is NaN."""

    label: np.ndarray
    covariates: np.ndarray
    tr: np.ndarray

    @classmethod
    def unknown(cls, count: int) -> "People":
        """Without a table."""
        nothing = np.full(count, np.nan)
        return cls(nothing, np.full((count, 3), np.nan, np.float32), nothing)


def read_people(path: Path, subjects: list[str], dataset: dict) -> People:
    """The rows of a table for ``subjects``, which may be names of files that begin with ids."""
    table = read_table(path)
    columns = {role: _column(table, role, dataset) for role in COLUMNS}
    if columns["subject"] is None:
        raise BrioError(
            f"{path} has no column 'subject' or 'participant_id'; name the column of the ids so"
        )
    if columns["label"] is None:
        raise BrioError(
            f"{path} has no column 'label' or 'diagnosis'; name the column of the classes so, and "
            "write n/a where a class is unknown"
        )
    ids = table[columns["subject"]].tolist()
    places = [_place(subject, ids, path) for subject in subjects]
    if all(place is None for place in places):
        raise BrioError(
            f"{path} has no row for any scan, such as {subjects[0]!r}; write ids as in the names "
            "of the files"
        )
    for place, one in enumerate(ids):
        if len(same := [name for name, its in zip(subjects, places) if its == place]) > 1:
            raise BrioError(
                f"{path}: the row {one!r} would serve the scans {same[0]} and {same[1]}; leave one "
                "of them in the folder, or write ids as in the names of the files"
            )

    def values(role: str) -> list[str]:
        if columns[role] is None:
            return [MISSING] * len(subjects)
        cells = table[columns[role]]
        return [MISSING if place is None else cells.iloc[place] for place in places]

    import pandas as pd

    codes, classes = {"1": 1.0, "0": 0.0}, dataset.get("label")
    if classes:
        own = {str(classes["positive"]): 1.0, str(classes["negative"]): 0.0}
        is_own = columns["label"] == dataset.get("columns", {}).get("label")
        codes = own if is_own else own | codes
    label = [codes.get(value, np.nan) for value in values("label")]
    strange = [v for v in values("label") if v != MISSING and v not in codes]
    if strange:
        known = " and ".join(map(repr, codes))
        raise BrioError(
            f"{path} has the label {strange[0]!r} in column {columns['label']!r}, which is neither "
            f"of {known}; write these, or n/a"
        )
    people = pd.DataFrame({role: values(role) for role in ("age", "sex", "mean_fd")})
    tr = pd.to_numeric(pd.Series(values("tr")), errors="coerce").to_numpy(float)
    return People(np.array(label, float), covariates_of(people), tr)


def _column(table, role: str, dataset: dict) -> str | None:
    own = dataset.get("columns", {}).get(role)
    named = {name.casefold(): name for name in table.columns}
    candidates = ([own] if own else []) + list(COLUMNS[role])
    return next((named[one.casefold()] for one in candidates if one.casefold() in named), None)


def _place(subject: str, ids: list[str], path: Path) -> int | None:
    """The row of a subject: its id, or the longest that begins its name or the value of ``sub-``.

    Else it is a part between underscores: Caltech_0051456_rois has the id 0051456. The 1 of
    ``sub-002_run-1`` is no subject.
    """
    bare = [one.removeprefix("sub-") for one in ids]
    name = re.split("(?:^|_)sub-", subject)[-1]
    begin = [one for one in bare if name.startswith(one) and not name[len(one) :][:1].isalnum()]
    begin = begin or [one for one in bare if one in name.split("_")]
    own = subject if subject in bare else max(begin, key=len, default=None)
    found = [place for place, one in enumerate(bare) if one == own]
    if len(found) > 1:
        raise BrioError(f"{path} has several rows for the scan {subject}; leave one of them")
    return found[0] if found else None
