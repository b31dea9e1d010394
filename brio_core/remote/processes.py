"""Several worker processes for one plan: started together, heard line by line, stopped together."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from brio_core.system import signals as interrupts

# Longer than any clean-up takes; what hangs in a driver is killed then.
PATIENCE = 60.0


def run_together(commands: Sequence[Sequence[str]]) -> list[int]:
    """Run all commands at the same time and return their exit codes.

    Every line that they print is passed on whole, with the number of its process. A signal that
    should end this process ends them first, by SIGTERM, after which each cleans up.
    """
    children: list[subprocess.Popen] = []
    readers: list[threading.Thread] = []
    speaking = threading.Lock()
    try:
        with _hang_up_interrupts():
            for number, command in enumerate(commands, 1):
                # A group of its own: Ctrl-C comes from here only, and not twice.
                child = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE, text=True, errors="replace", process_group=0,
                )  # fmt: skip
                children.append(child)
                for source, target in ((child.stdout, sys.stdout), (child.stderr, sys.stderr)):
                    words = (source, target, f"[{number}] ", speaking)
                    readers.append(threading.Thread(target=_pass_on, args=words, daemon=True))
                    readers[-1].start()
            return [child.wait() for child in children]
    except KeyboardInterrupt:
        for child in children:
            child.terminate()
        for child in children:
            with suppress(subprocess.TimeoutExpired):
                child.wait(PATIENCE)
        raise
    finally:
        for child in children:
            child.kill()
        for reader in readers:
            reader.join(5.0)


def describe_ends(codes: Sequence[int]) -> list[str]:
    """One sentence for each process that did not end as it should."""
    return [
        f"process {number} was killed by {signal.Signals(-code).name}"
        if code < 0
        else f"process {number} ended with exit code {code}"
        for number, code in enumerate(codes, 1)
        if code
    ]


def _pass_on(source: IO[str], target: IO[str], mark: str, speaking: threading.Lock) -> None:
    # Closed if nobody listens here any more: then it ends there too, as one process alone does.
    with source, suppress(OSError):
        for line in source:
            with speaking:
                target.write(f"{mark}{line.rstrip()}\n")
                target.flush()


@contextmanager
def _hang_up_interrupts() -> Iterator[None]:
    """A lost terminal ends the others too, unless it is ignored (nohup)."""
    before = signal.getsignal(signal.SIGHUP)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, interrupts.interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)
