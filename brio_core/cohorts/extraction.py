"""One extract job: reads the scans of a batch of candidates and stores what came of each.

Its file has one numbered group per candidate, with facts of its :class:`Outcome` as attributes; a
readable scan has the datasets ``series``, ``names`` and ``dead`` beside them.
"""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import h5py
import numpy as np

from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.scan import RUN_SEPARATOR, AtlasMisfit, Scan, Unusable
from brio_core.cohorts.stores import FORMAT_VERSION, open_store
from brio_core.cohorts.tables import MISSING
from brio_core.system import sealed, signals
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic

KIND = "brio-part"
# In the order of Outcome, whose names and dead regions come behind them.
_ATTRIBUTES = ("subject", "reason", "frames_before", "frames_after", "rois", "source_sha256")


def extract_batch(reader: Reader, batch: list[dict]) -> Iterator[tuple[str, Scan | Unusable]]:
    """Read the scans of some candidates; a bad one never loses the others.

    An atlas that fits none of the images that could be read is the cohort's problem and an error;
    one that fits some of them is the problem of the others.
    """
    read, misfits = 0, []
    for done, candidate in enumerate(batch, start=1):
        result = _extract(reader, candidate)
        if isinstance(result, Scan):
            read += 1
            text = f"{len(result.series)} frames" + (f" ({result.note})" if result.note else "")
        else:
            text = str(result)
            misfits += [text] if isinstance(result, AtlasMisfit) else []
        # One line that changes on a terminal, where 1,000 would hide what comes after them.
        width, end = (79, "\r") if sys.stderr.isatty() and done < len(batch) else (0, "\n")
        line = f"{done}/{len(batch)} {candidate['subject']}: {text}".ljust(width)
        print(line, end=end, file=sys.stderr, flush=True)
        yield candidate["subject"], result
    if misfits and not read:
        raise BrioError(
            f"the atlas of cohort {reader.dataset['cohort']} fits none of its images "
            f"({misfits[0]}); take an atlas in the space of the images"
        )


def _extract(reader: Reader, candidate: dict) -> Scan | Unusable:
    if candidate["excluded"]:
        return Unusable(candidate["excluded"])
    tr = None if candidate["tr"] == MISSING else float(candidate["tr"])
    names = candidate["source"].split(RUN_SEPARATOR)
    where = f"the file of subject {candidate['subject']}"
    paths = [reader.inside(reader.data_dir, name, where) for name in names]
    try:
        return replace(reader.read_runs(paths, tr), source_sha256=_checksum(paths))
    except Unusable as unusable:
        return unusable
    except BrioError:
        raise
    except Exception as error:
        # A library may have taken a signal for an error of its own.
        signals.reraise()
        # What libraries make of damaged files is without end; one file must not cost the others.
        what = str(error) or "no more is known"
        return Unusable(f"unreadable file: {names[0]} ({type(error).__name__}: {what})")


def _checksum(paths: list[Path]) -> str:
    """SHA-256 of the file of a scan, or of its runs one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """One candidate after extraction; ``reason`` is empty for a readable scan, counts may be -1.

    ``dead`` has the places of the regions without signal.
    """

    subject: str
    reason: str = ""
    frames_before: int = -1
    frames_after: int = -1
    rois: int = -1
    source_sha256: str = ""
    names: tuple[str, ...] = ()
    dead: tuple[int, ...] = ()

    @property
    def constant_rois(self) -> int:
        """How many regions are without signal."""
        return -1 if self.reason else len(self.dead)

    @classmethod
    def of(cls, subject: str, result: Scan | Unusable) -> "Outcome":
        """What extraction found out about one candidate."""
        if isinstance(result, Unusable):
            return cls(subject, str(result), result.frames_before, result.frames_after)
        return cls(
            subject,
            frames_before=result.frames_before,
            frames_after=len(result.series),
            rois=result.series.shape[1],
            source_sha256=result.source_sha256,
            names=result.names,
            dead=result.dead,
        )


def joint_checksum(outcomes: Iterable[Outcome]) -> str:
    """One SHA-256 for the source files of several subjects."""
    lines = sorted(f"{outcome.source_sha256}  {outcome.subject}\n" for outcome in outcomes)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_batch(path: str | Path, results: Iterable[tuple[str, Scan | Unusable]]) -> None:
    """Write what :func:`extract_batch` yields, one candidate after the other."""
    with atomic(path) as temporary, sealed.create(temporary) as store:
        store.attrs.update(format=KIND, version=FORMAT_VERSION)
        for number, (subject, result) in enumerate(results):
            store.check_disk()
            group = store.create_group(f"{number:06d}")
            outcome = Outcome.of(subject, result)
            group.attrs.update({name: getattr(outcome, name) for name in _ATTRIBUTES})
            if isinstance(result, Scan):
                group["series"] = np.ascontiguousarray(result.series, np.float32)
                group.create_dataset("names", data=list(result.names), dtype=h5py.string_dtype())
                group["dead"] = np.array(result.dead, np.int64)


class ExtractedScans:
    """What all extract jobs of a cohort wrote, opened for reading."""

    def __init__(self, paths: Iterable[str | Path]):
        self._group = {}
        for path in paths:
            for group in open_store(path, KIND).values():
                self._group[group.attrs["subject"]] = group

    def outcome(self, subject: str) -> Outcome:
        """What became of one candidate."""
        if subject not in self._group:
            raise BrioError(
                f"no part holds subject {subject}; delete the folder 'parts' of the cohort and run "
                "the workflow again"
            )
        group = self._group[subject]
        names = tuple(group["names"].asstr()[:].tolist()) if "names" in group else ()
        dead = tuple(group["dead"][:].tolist()) if "dead" in group else ()
        values = (group.attrs[name] for name in _ATTRIBUTES)
        facts = (value if isinstance(value, str) else int(value) for value in values)
        return Outcome(*facts, names, dead)

    def series(self, subject: str) -> np.ndarray:
        """The series of a subject whose scan could be read."""
        return self._group[subject]["series"][:]
