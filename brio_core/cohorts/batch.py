"""One extract job: several candidates, of which a bad one never loses the others."""

import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from brio_core.cohorts.source import RUN_SEPARATOR, AtlasMisfit, Scan, Source, Unusable
from brio_core.cohorts.tables import MISSING
from brio_core.system.errors import BrioError


def extract_batch(
    source: Source, batch: list[tuple[int, dict]]
) -> Iterator[tuple[int, str, Scan | Unusable]]:
    """Read the scans of a batch of (position, candidate) pairs.

    An atlas that fits none of the images that could be read is the cohort's problem and an error;
    one that fits some of them is the problem of the others.
    """
    read, misfits = 0, []
    for done, (position, candidate) in enumerate(batch, start=1):
        result = _extract(source, candidate)
        read += isinstance(result, Scan)
        if isinstance(result, AtlasMisfit):
            misfits.append(str(result))
        text = str(result) if isinstance(result, Unusable) else _told(result)
        print(f"{done}/{len(batch)} {candidate['subject']}: {text}", file=sys.stderr, flush=True)
        yield position, candidate["subject"], result
    if misfits and not read:
        raise BrioError(
            f"the atlas of cohort {source.dataset['cohort']} fits none of its images "
            f"({misfits[0]}); take an atlas in the space of the images"
        )


def _extract(source: Source, candidate: dict) -> Scan | Unusable:
    if candidate["excluded"]:
        return Unusable(candidate["excluded"])
    tr = None if candidate["tr"] == MISSING else float(candidate["tr"])
    names = candidate["source"].split(RUN_SEPARATOR)
    where = f"the file of subject {candidate['subject']}"
    paths = [source.inside(source.data_dir, name, where) for name in names]
    try:
        scan = source.read_runs(paths, tr)
        return replace(scan, source_sha256=_checksum(paths))
    except Unusable as unusable:
        return unusable


def _checksum(paths: list[Path]) -> str:
    """SHA-256 of the file of a scan, or of its runs one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as stream:
            while block := stream.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def _told(scan: Scan) -> str:
    return f"{len(scan.series)} frames" + (f" ({scan.note})" if scan.note else "")
