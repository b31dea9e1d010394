"""Files that appear complete or not at all."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from brio_core.system import signals
from brio_core.system.errors import BrioError

ROOT = Path(__file__).resolve().parents[2]
# A wheel carries a copy of planning code and schemas, which a clone has beside the package.
_COPY = ROOT / "brio_core" / "repository"
IN_CLONE = not _COPY.is_dir()
# What this process is writing just now.
_temporary: set[Path] = set()


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; rename it on success, remove it on failure."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    _temporary.add(temporary)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        # What somebody took for an error, a damaged scan say, must not become part of a result.
        signals.reraise()
        os.replace(temporary, path)
        _remove(path.parent.glob(f".{glob.escape(path.name)}.*.partial"))
    except OSError as error:
        # HDF5 wraps the reason in many words of its own.
        reason = os.strerror(error.errno) if error.errno else error
        raise BrioError(f"{path} could not be written: {reason}") from error
    finally:
        _remove([temporary])
        _temporary.discard(temporary)


def remove_temporary() -> None:
    """Delete what is half written, before a program ends that does not unwind to the end.

    A signal between a block of ``with`` and its end leaves the end to Python's clean-up.
    """
    _remove(_temporary)


def _remove(paths: Iterable[Path]) -> None:
    """Delete temporary files, also those that killed processes have left."""
    for path in paths:
        with suppress(OSError):
            path.unlink()


def locked(descriptor: int) -> bool:
    """Whether an open file could be locked, until it is closed; on a disk without locks it could.

    The system gives a lock back when its process ends, however it ends.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True


def make_planning_importable() -> None:
    """Let ``import workflow.planning`` find that code, with a clone and without."""
    place = str(ROOT if IN_CLONE else _COPY)
    if place not in sys.path:
        sys.path.insert(0, place)


def own_or_shipped(path: str | Path) -> Path:
    """A file of the configuration: that of the working directory, else that of the repository."""
    return Path(path) if Path(path).exists() else ROOT / path


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one step."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    """Write JSON with a stable layout, so that equal contents are equal bytes."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def digest(path: str | Path) -> str:
    """The SHA-256 of a file's bytes."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_json(path: str | Path, *keys: str) -> dict:
    """Read JSON, with ``keys`` an object that has them; say which file is missing or broken."""
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
        if keys and not isinstance(value, dict):
            raise ValueError("it is no object")
        missing = [key for key in keys if key not in value]
        if missing:
            raise ValueError(f"it has no {missing[0]!r}")
        return value
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the workflow, which makes it") from None
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise BrioError(
            f"{path} is not valid JSON of ours ({error}); delete it and run the workflow again"
        ) from None
