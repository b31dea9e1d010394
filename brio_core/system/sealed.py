"""HDF5 files that know whether a byte of them has changed.

HDF5 checks the numbers of a damaged file but not its structure, and may search it for ever. So a
file starts with a block, which HDF5 leaves to its users, that holds the size and checksum of the
rest; it is compared before HDF5 reads anything.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path

import h5py

from brio_core.system.errors import MAYBE_OURS, BrioError

_BLOCK, _PART = 512, 2**24
_MARK = b"brio-sealed"
_HDF5 = b"\x89HDF"


class _Disk(FileIO):
    """A file whose writes never fail: HDF5 crashes when it cannot write. It keeps the error."""

    error: OSError | None = None

    def write(self, block) -> int:
        rest = memoryview(block).cast("B")
        while len(rest) and self.error is None:
            try:
                rest = rest[super().write(rest) :]
            except OSError as error:
                self.error = error
        return memoryview(block).nbytes

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


class Store(h5py.File):
    """A new file that says early whether the disk still takes what is written."""

    def __init__(self, disk: _Disk) -> None:
        super().__init__(disk, "w", userblock_size=_BLOCK)
        self._disk = disk

    def check_disk(self) -> None:
        """Raise what the last writes met."""
        if self._disk.error is not None:
            raise self._disk.error


@contextmanager
def create(path: Path) -> Iterator[Store]:
    """A new file, sealed when it is closed."""
    with _Disk(path, "w+") as disk:
        try:
            with Store(disk) as store:
                yield store
        except Exception as error:
            # What could not be written cannot be read again, which HDF5 tells in many words.
            raise disk.error or error from None
        if disk.error is not None:
            raise disk.error
    seal(path)


def seal(path: Path) -> None:
    """Write size and checksum of what follows into the first block."""
    size, checksum = _measure(path)
    line = b"%s %d %s\n" % (_MARK, size, checksum.encode())
    with open(path, "r+b") as stream:
        stream.write(line.ljust(_BLOCK, b"\0"))


def check(path: str | Path) -> None:
    """Raise if a sealed file is not what was written; files without a seal are let through."""
    try:
        with open(path, "rb") as stream:
            head = stream.read(_BLOCK)
        if head.startswith(_HDF5):
            return
        size, checksum = _measure(path)
    except OSError:
        # Absent or unreadable: whoever opens it will say so.
        return
    words = head.split(b"\n")[0].split()
    if len(words) != 3 or words[0] != _MARK:
        raise BrioError(f"{path} is not a readable HDF5 file; {MAYBE_OURS}")
    elif words[1] == str(size).encode() and words[2] == checksum.encode():
        return
    elif words[1].isdigit() and int(words[1]) > size:
        what = "is cut off"
    else:
        what = "is damaged (its checksum does not fit)"
    raise BrioError(f"{path} {what}; delete it and run the workflow again")


def is_sealed(path: str | Path) -> bool:
    """Whether a file begins with a seal; what cannot be read does not."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(_MARK)) == _MARK
    except OSError:
        return False


def checksum(path: str | Path) -> str:
    """The checksum of a file, from its seal where it has one."""
    with open(path, "rb") as stream:
        words = stream.read(_BLOCK).split(b"\n")[0].split()
    if len(words) == 3 and words[0] == _MARK:
        return words[2].decode()
    return _measure(path)[1]


def _measure(path: str | Path) -> tuple[int, str]:
    with open(path, "rb") as stream:
        stream.seek(_BLOCK)
        checksum = hashlib.blake2b()
        # Large parts: between them a thread waits for others.
        while part := stream.read(_PART):
            checksum.update(part)
    return Path(path).stat().st_size, checksum.hexdigest()
