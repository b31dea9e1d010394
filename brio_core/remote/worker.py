"""A process that does one job after the other, so that torch and CUDA start once for many."""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from brio_core.system.cli import run

# Seconds that a call of the system can wait for; more than any job takes.
LONGEST = 1e7


class Worker:
    """Does jobs of one machine in a process; after a failure another process takes its place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._child: subprocess.Popen | None = None

    def do(self, program: str, arguments: Sequence[str], seconds: float) -> int | None:
        """The exit code of a job, 0 if it succeeded; None if the time did not suffice."""
        if self._child is None:
            self._child = subprocess.Popen(
                [sys.executable, "-m", __spec__.name], cwd=self._folder, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                env=os.environ | {"PYTHONPATH": str(self._folder)},
            )  # fmt: skip
        child = self._child
        print(json.dumps([program, *arguments]), file=child.stdin, flush=True)
        if not select.select([child.stdout], [], [], min(seconds, LONGEST))[0]:
            return None
        if child.stdout.readline():
            return 0
        self._child = None
        return child.wait()

    def end(self) -> None:
        """Programs that are told to end clean up, and continue from their last checkpoint."""
        if self._child is not None:
            # A program whose job is done ignores signals, but leaves when there is nothing to read.
            self._child.stdin.close()
            self._child.terminate()
            self._child.wait()
            self._child = None


def serve() -> None:
    """Do the jobs that come line by line, and answer each that succeeds with a line."""
    answers = os.fdopen(os.dup(1), "w")
    # What jobs print must not pass for an answer.
    os.dup2(2, 1)
    sys.path.insert(0, "scripts")
    for line in sys.stdin:
        sys.argv = json.loads(line)
        run(importlib.import_module(sys.argv[0]).main)
        print("done", file=answers, flush=True)
        # There is nothing to clean up until the next job listens, and it may import for seconds.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


if __name__ == "__main__":
    serve()
