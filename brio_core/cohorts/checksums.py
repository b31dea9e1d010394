"""Which files a result was made of: checksums that it keeps, so that stale ones are noticed."""

import hashlib
from pathlib import Path

from brio_core.system import sealed
from brio_core.system.errors import BrioError

COHORT_FILES = ("participants.tsv", "series.h5", "fc.h5")


def input_checksums(cohort_dir: Path, block_length: Path) -> dict[str, str]:
    """What training and diagnostics read besides the split, whose checksum has its own place."""
    files = {name: Path(cohort_dir) / name for name in COHORT_FILES}
    files["block_length"] = Path(block_length)
    return {name: checksum(path) for name, path in files.items()}


def checksum(path: Path) -> str:
    """The checksum of a file; large ones carry theirs, so that they are not read for it."""
    try:
        if path.suffix == ".h5":
            return sealed.checksum(path)
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None
