"""What all command-line programs share: how they end, and how far they are."""

import atexit
import gc
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from brio_core.system import signals
from brio_core.system.errors import BrioError
from brio_core.system.files import ROOT, remove_temporary

# How often Python looks for garbage by itself.
PACE = gc.get_threshold()
# Whether the program has done its work.
_succeeded = False


def run(main: Callable[[], None]) -> None:
    """Call ``main``; a :class:`BrioError` becomes one line on stderr and exit code 1.

    Ctrl-C and SIGTERM unwind like errors do, so that no temporary file stays behind.
    """
    global _succeeded
    _succeeded = False
    # Looking for garbage among what imports make, which all stays, takes a tenth of their time.
    gc.set_threshold(100_000)
    # What is registered first is called last.
    atexit.unregister(_leave_at_once)
    atexit.register(_leave_at_once)
    # A name that a terminal cannot show is written out there, instead of ending the program.
    sys.stdout.reconfigure(errors="backslashreplace")
    signals.listen()
    try:
        try:
            main()
            signals.ignore()
            _succeeded = True
        except Exception:
            signals.reraise()
            raise
    except BrioError as error:
        _leave(f"error: {error}", 1)
    except KeyboardInterrupt as interrupt:
        number = interrupt.args[0]
        _leave(f"stopped by {signal.Signals(number).name}", 128 + number)
    except Exception as error:
        traceback.print_exc()
        frames = traceback.extract_tb(error.__traceback__)
        folders = ROOT / "brio_core", ROOT / "scripts"
        paths = [(Path(one.filename), one.lineno) for one in frames]
        path, line = [one for one in paths if any(map(one[0].is_relative_to, folders))][-1]
        _leave(
            f"error: {type(error).__name__} in {path.relative_to(ROOT)}, line {line}, which this "
            "program did not expect; if that file is yours, correct it; if a file of the results "
            "was edited or damaged, delete it and run again; else please report this log",
            1,
        )


def _leave_at_once() -> None:
    """End without taking modules apart, which needs half a second where torch is among them."""
    if _succeeded:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def _leave(text: str, code: int) -> NoReturn:
    sys.stdout.flush()
    print(text, file=sys.stderr, flush=True)
    remove_temporary()
    # Without Python's clean-up: after a failed write HDF5's crashes.
    os._exit(code)


def json_argument(text: str) -> dict:
    """An argparse type for resolved configuration handed over as JSON."""
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


class Progress:
    """Report epochs of a group of folds, with the time that is left at the present pace.

    It is one live line on a terminal, and plain lines in a log.
    """

    def __init__(self, title: str, total: int, start: int = 0) -> None:
        self._title = title
        self._total = total
        self._start = start
        self._begun = time.monotonic()
        self._live = sys.stderr.isatty()
        self._pause = 0.2 if self._live else 15.0
        self._last = 0.0

    def update(self, done: int, note: str = "") -> None:
        """Say that ``done`` of the total are finished, if it is time to say something."""
        now = time.monotonic()
        if done < self._total and now - self._last < self._pause:
            return
        self._last = now
        elapsed = now - self._begun
        left = elapsed / max(1, done - self._start) * (self._total - done)
        line = (
            f"{self._title}: epoch {done}/{self._total}, {elapsed:.0f} s, {left:.0f} s left {note}"
        )
        end = "\r" if self._live and done < self._total else "\n"
        print(line.rstrip().ljust(79), end=end, file=sys.stderr, flush=True)
