"""Signals that end a program, also where somebody has taken them for an error.

Code in C that calls Python may replace what a handler raises by an error of its own (HDF5 and the
parser of pandas do), and Python drops what is raised while an object is deleted. So what came is
remembered. Whoever handles an error or puts a file in place calls :func:`reraise` first.
"""

import signal
import sys
from typing import NoReturn

_received: list[int] = []


def listen() -> None:
    """Let Ctrl-C and SIGTERM raise ``KeyboardInterrupt(number)``."""
    signal.signal(signal.SIGTERM, interrupt)
    # A background job of a shell ignores Ctrl-C.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    sys.unraisablehook = _report_dropped


def ignore() -> None:
    """All is done: what comes now only finds Python tidying up."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def interrupt(number: int, frame: object) -> NoReturn:
    """A handler of signals."""
    _received.append(number)
    raise KeyboardInterrupt(number)


def reraise() -> None:
    """Raise again what a signal has raised before."""
    if _received:
        raise KeyboardInterrupt(_received[0])


def _report_dropped(unraisable: "sys.UnraisableHookArgs") -> None:
    if unraisable.exc_type is not KeyboardInterrupt:
        sys.__unraisablehook__(unraisable)
