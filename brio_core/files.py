"""Files that appear complete or not at all."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brio_core.errors import BrioError


@contextmanager
def atomic(path: str | Path) -> Iterator[Path]:
    """Give a temporary path beside ``path``; rename it on success, remove it on failure."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise BrioError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write a text file in one step."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: object) -> None:
    """Write JSON with a stable layout, so that equal contents are equal bytes."""
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def read_json(path: str | Path) -> dict:
    """Read a JSON object; say which file is missing or broken."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; run the rule that makes it first") from None
    except ValueError as error:
        raise BrioError(
            f"{path} is not valid JSON ({error}); delete it and run the workflow again"
        ) from None
