"""Results as tar files for the way back; what comes out of one is trusted with nothing."""

import hashlib
import io
import json
import math
import shutil
import tarfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from brio_core.system.errors import BrioError
from brio_core.system.files import atomic

CONTENTS = "contents.json"
_BLOCK = 512
# Its own table of contents, the end mark, and the filling up to whole records.
_END = 24 * _BLOCK


def write_parts(
    groups: Mapping[str, Sequence[Path]], root: Path, out: Path, part_bytes: float
) -> list[Path]:
    """Write the files of all groups to ``out``, or to numbered files of at most ``part_bytes``.

    Every file is an archive by itself, and no group is torn apart: each can be taken alone.
    """
    if not out.name.endswith((".tar", ".tar.gz")):
        raise BrioError(f"the name of an archive ends with .tar or .tar.gz, unlike {out}")
    parts: list[list[Path]] = [[]]
    size = 0
    for name, files in groups.items():
        group = sum(map(_stored_size, files))
        if group + _END > part_bytes:
            print(f"{name} alone has {group / 1e6:.1f} MB, more than a part should have")
        if parts[-1] and size + group + _END > part_bytes:
            parts.append([])
            size = 0
        parts[-1] += files
        size += group
    names = [_numbered(out, number) for number in range(1, len(parts) + 1)]
    for path, files in zip(names if math.isfinite(part_bytes) else [out], parts):
        _write(path, files, root)
    return names if math.isfinite(part_bytes) else [out]


def _numbered(path: Path, number: int) -> Path:
    stem = path.name.removesuffix(".gz").removesuffix(".tar")
    return path.with_name(f"{stem}-{number}{path.name.removeprefix(stem)}")


def _stored_size(path: Path) -> int:
    """Bytes in an archive, with a line in its table of contents."""
    return _BLOCK * (1 + math.ceil(path.stat().st_size / _BLOCK)) + len(str(path)) + 80


def _write(out: Path, files: Iterable[Path], root: Path) -> None:
    named = {str(PurePosixPath(path.relative_to(root))): path for path in files}
    contents = {name: _checksum(path) for name, path in named.items()}
    text = json.dumps(contents, indent=1).encode()
    mode = "w:gz" if out.suffix == ".gz" else "w"
    with atomic(out) as temporary, tarfile.open(temporary, mode) as archive:
        head = tarfile.TarInfo(CONTENTS)
        head.size = len(text)
        archive.addfile(head, io.BytesIO(text))
        for name, path in named.items():
            member = tarfile.TarInfo(name)
            member.size = path.stat().st_size
            with open(path, "rb") as stream:
                archive.addfile(member, stream)


def _checksum(path: Path) -> str:
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def unpack(archive_path: Path, allowed: Mapping[str, Sequence[str]], target: Path) -> set[str]:
    """Write the files of an archive below ``target`` and return the folders that it has.

    Only plain files may come, each once, named in the table of contents, and only those that
    ``allowed`` names for their folder.
    """
    try:
        with tarfile.open(archive_path) as archive:
            first = archive.next()
            if first is None or first.name != CONTENTS:
                raise BrioError(f"{archive_path} was not made by 'handover.py pack'")
            contents = dict(json.load(archive.extractfile(first)))
            folders = set()
            while member := archive.next():
                folder = _checked(member, contents, allowed, archive_path)
                path = target / member.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with open(path, "xb") as stream:
                    shutil.copyfileobj(archive.extractfile(member), stream)
                if _checksum(path) != contents.pop(member.name):
                    raise BrioError(f"{archive_path} is damaged: {member.name} was changed")
                folders.add(folder)
    except (tarfile.TarError, EOFError, OSError, ValueError, TypeError, AttributeError) as error:
        reason = str(error).partition(":")[0]
        raise BrioError(f"{archive_path} cannot be read ({reason}); fetch it again") from None
    if contents:
        raise BrioError(f"{archive_path} is cut off, it has no {min(contents)}; fetch it again")
    return folders


def _checked(
    member: tarfile.TarInfo,
    contents: Mapping[str, str],
    allowed: Mapping[str, Sequence[str]],
    archive_path: Path,
) -> str:
    folder, _, name = member.name.rpartition("/")
    # Sparse files count as regular ones elsewhere, and can be of any size.
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise BrioError(f"{archive_path}: {member.name} is no plain file; nothing was taken")
    if member.name not in contents or folder not in allowed:
        raise BrioError(
            f"{archive_path}: {member.name} does not belong to the plan; nothing was taken"
        )
    if name not in allowed[folder]:
        raise BrioError(f"{archive_path}: {member.name} is no result of {folder}")
    return folder
