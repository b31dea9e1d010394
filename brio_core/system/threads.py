"""Independent problems on several threads, each problem on one of them.

Small operations gain nothing from a second thread, and wait for it as long as another program keeps
it busy. What was computed on one thread does not depend on how many there are.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

Run = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]


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
            yield lambda function, items: [function(item) for item in items]
            return
        with ThreadPoolExecutor(count) as pool:
            yield lambda function, items: list(pool.map(function, items))


def spread(function: Callable[[Any], Any], items: Sequence[Any], device: torch.device) -> list[Any]:
    """``[function(item) for item in items]``, on a CPU as many at once as torch has threads."""
    with workers(device) as run:
        return run(function, items)
