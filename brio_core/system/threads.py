"""Independent problems on several threads or processes, each problem on one of them.

Small operations gain nothing from a second thread, and wait for it as long as another program keeps
it busy. What was computed on one thread does not depend on how many there are.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import torch

Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
MOST_PROCESSES = 8


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for each operation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def workers(device: torch.device) -> Iterator[Run]:
    """``run(function, items)`` is ``[function(item) for item in items]``.

    On a CPU it works on as many items at once as torch has threads; torch itself uses one.
    """
    count = torch.get_num_threads() if device.type == "cpu" else 1
    with one_thread():
        if count == 1:
            yield plainly
            return
        with ThreadPoolExecutor(count) as pool:
            yield lambda function, items: list(pool.map(function, items))


def spread(function: Callable[[Any], Any], items: Sequence[Any], device: torch.device) -> list[Any]:
    """``[function(item) for item in items]``, on a CPU as many at once as torch has threads."""
    with workers(device) as run:
        return run(function, items)


def plainly(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    """``[function(item) for item in items]``."""
    return [function(item) for item in items]


@contextmanager
def processes() -> Iterator[Run]:
    """A :func:`plainly` by several processes, for work that threads of Python do in turn.

    They are copies of this one as it is now, so enter before CUDA or other threads start.
    """
    count = min(MOST_PROCESSES, os.cpu_count() or 1)
    # Elsewhere a process has to import everything again, which takes longer than reading.
    if count == 1 or sys.platform != "linux":
        yield plainly
        return
    with ProcessPoolExecutor(count, mp_context=get_context("fork")) as pool:
        pool.submit(int).result()
        yield lambda function, items: list(pool.map(function, items, chunksize=4))
