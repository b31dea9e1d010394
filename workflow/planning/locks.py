"""One run at a time in a folder of results, which several working directories may name."""

import atexit
import json
import os
import socket
from pathlib import Path

from brio_core.system.files import locked

# Open for as long as this process lives: the system gives the lock back when it ends.
_held: list[int] = []


def lock(results: str) -> str:
    """Lock the folder until this process ends; else a sentence that says who has it."""
    path, host = Path(results) / ".lock", socket.gethostname()
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        # A disk that knows no locks is left to what the file says.
        is_free = locked(descriptor)
        owner = _owner(descriptor)
        # On a disk whose locks end at a machine, another one may be at work though it is free. On
        # this machine, a process that left its name and no lock is dead.
        if not is_free or owner.get("host", host) != host:
            os.close(descriptor)
            who = f"process {owner.get('pid', '?')} on {owner.get('host', 'another machine')}"
            return (
                f"{results} is in use by {who}; wait until it has ended, or, if it was killed, "
                f"delete {path}"
            )
        try:
            is_same = os.path.samestat(os.stat(path), os.fstat(descriptor))
        except FileNotFoundError:
            is_same = False
        if is_same:
            break
        # The last owner has removed it meanwhile.
        os.close(descriptor)
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"host": host, "pid": os.getpid()}).encode(), 0)
    _held.append(descriptor)
    atexit.register(path.absolute().unlink, missing_ok=True)
    return ""


def _owner(descriptor: int) -> dict:
    try:
        value = json.loads(os.pread(descriptor, 1000, 0))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
