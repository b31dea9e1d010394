"""How far a long job is: one live line on a terminal, plain lines in a log."""

import sys
import time


class Progress:
    """Report epochs of a group of folds, with the time that is left at the present pace."""

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
