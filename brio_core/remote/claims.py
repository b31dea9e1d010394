"""Which job is whose: locks that end with the process that holds them, however it ends."""

import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from brio_core.system.errors import BrioError

FOLDER = ".claims"
_BEGUN, _FAILED = "begun", "failed"


class Claims:
    """One file per job. It also tells which call of the program has begun the job last.

    A job that was begun in a call is not begun a second time in it: it failed, or whoever had it
    was killed and others might be too. The next call tries again.
    """

    def __init__(self, root: Path, call: str) -> None:
        self.call = call
        self._folder = root / FOLDER
        self._held: int | None = None

    def take(self, name: str) -> bool:
        """Claim a job, if nobody has it and it was not begun in this call."""
        file = self._locked(name, fcntl.LOCK_EX)
        if file is None:
            return False
        if os.pread(file, 200, 0).decode().startswith(f"{self.call} "):
            os.close(file)
            return False
        self._held = file
        self._write(_BEGUN)
        return True

    def fail(self) -> None:
        """Write down that the job in hand has failed."""
        self._write(_FAILED)

    def release(self) -> None:
        """Let go of the job in hand."""
        if self._held is not None:
            os.close(self._held)
            self._held = None

    def is_held(self, name: str) -> bool:
        """Whether a process has this job in work; looking does not disturb others who look."""
        if not self._path(name).exists():
            return False
        file = self._locked(name, fcntl.LOCK_SH)
        if file is not None:
            os.close(file)
        return file is None

    def failed(self, names: Iterable[str]) -> list[str]:
        """Jobs that have failed in this call, in any of its processes."""
        paths = {name: self._path(name) for name in names}
        mark = f"{self.call} {_FAILED}"
        return [name for name, path in paths.items() if path.exists() and path.read_text() == mark]

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.lock"

    def _write(self, state: str) -> None:
        os.ftruncate(self._held, 0)
        os.pwrite(self._held, f"{self.call} {state}".encode(), 0)

    def _locked(self, name: str, kind: int) -> int | None:
        path = self._path(name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                raise
        except BlockingIOError:
            return None
        except OSError as error:
            raise BrioError(
                f"{path} could not be locked ({os.strerror(error.errno)}); put the results on a "
                "disk of this machine and name it with --results"
            ) from None
        return file
