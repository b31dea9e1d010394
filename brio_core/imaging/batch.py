"""One extract job: several candidates, of which a bad one never loses the others."""

import sys
from collections.abc import Iterator

from brio_core.errors import BrioError
from brio_core.imaging.base import AtlasMisfit, Scan, Source, Unusable
from brio_core.imaging.tables import MISSING


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
        text = str(result) if isinstance(result, Unusable) else f"{len(result.series)} frames"
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
    try:
        return source.read(source.data_dir / candidate["source"], tr)
    except Unusable as unusable:
        return unusable
