"""What one extract job made of its batch of candidates.

One group per candidate, called by its position in candidates.tsv, with the attributes of
:class:`Outcome`; a readable scan has the datasets ``series`` and ``names`` beside them.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import h5py
import numpy as np

from brio_core.cohorts.source import Scan, Unusable
from brio_core.system import sealed
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic

_FORMAT = "brio-part"


@dataclass(frozen=True)
class Outcome:
    """One candidate after extraction; ``reason`` is empty for a readable scan, counts may be -1."""

    subject: str
    reason: str = ""
    frames_before: int = -1
    frames_after: int = -1
    rois: int = -1
    constant_rois: int = -1
    checksum: str = ""
    names: tuple[str, ...] = ()
    source_sha256: str = ""


def outcome_of(subject: str, result: Scan | Unusable) -> Outcome:
    """What extraction found out about one candidate."""
    if isinstance(result, Unusable):
        counts = {"frames_before": result.frames_before, "frames_after": result.frames}
        known = {name: count for name, count in counts.items() if count is not None}
        return Outcome(subject, str(result), **known)
    return Outcome(
        subject,
        frames_before=result.frames_before,
        frames_after=len(result.series),
        rois=result.series.shape[1],
        constant_rois=result.constant_rois,
        checksum=hashlib.sha256(result.series.astype(np.float32).tobytes()).hexdigest(),
        source_sha256=result.source_sha256,
        names=result.names,
    )


def sources_checksum(outcomes: Iterable[Outcome]) -> str:
    """One SHA-256 for the source files of several subjects."""
    lines = sorted(f"{outcome.source_sha256}  {outcome.subject}\n" for outcome in outcomes)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_part(path: str | Path, results: Iterable[tuple[int, str, Scan | Unusable]]) -> None:
    """Write (position, subject, result) triples one after the other."""
    with atomic(path) as temporary, sealed.create(temporary) as store:
        store.attrs["format"] = _FORMAT
        for position, subject, result in results:
            group = store.create_group(f"{position:06d}")
            facts = asdict(outcome_of(subject, result))
            names = facts.pop("names")
            group.attrs.update(facts)
            if isinstance(result, Scan):
                group["series"] = np.ascontiguousarray(result.series, np.float32)
                group.create_dataset("names", data=list(names), dtype=h5py.string_dtype())


class Parts:
    """All parts of a cohort, opened for reading."""

    def __init__(self, paths: Iterable[str | Path]):
        self._group = {}
        for path in paths:
            for group in _open(Path(path)).values():
                self._group[group.attrs["subject"]] = group

    def outcome(self, subject: str) -> Outcome:
        """What became of one candidate."""
        if subject not in self._group:
            raise BrioError(f"no part holds subject {subject}; run the extract jobs again")
        group = self._group[subject]
        names = tuple(group["names"].asstr()[:].tolist()) if "names" in group else ()
        counts = {
            name: value if isinstance(value, str) else int(value)
            for name, value in group.attrs.items()
        }
        return Outcome(**counts, names=names)

    def series(self, subjects: Iterable[str]) -> Iterator[np.ndarray]:
        """The series of some subjects, one at a time."""
        for subject in subjects:
            yield self._group[subject]["series"][:]


def _open(path: Path) -> h5py.File:
    sealed.check(path)
    try:
        store = h5py.File(path, "r")
    except OSError:
        raise BrioError(
            f"{path} is not a readable HDF5 file; delete it and run extract again"
        ) from None
    if store.attrs.get("format") != _FORMAT:
        raise BrioError(f"{path} was not written by extract; delete it and run extract again")
    return store
