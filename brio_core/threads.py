"""Independent problems on several threads, each problem on one of them.

Small operations gain nothing from a second thread, and wait for it as long as another program keeps
it busy. What was computed on one thread does not depend on how many there are.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread for each operation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def spread(function: Callable[[Any], Any], items: Sequence[Any], device: torch.device) -> list[Any]:
    """``[function(item) for item in items]``, on a CPU as many at once as torch has threads."""
    workers = torch.get_num_threads() if device.type == "cpu" else 1
    with one_thread():
        if workers == 1:
            return [function(item) for item in items]
        with ThreadPoolExecutor(workers) as pool:
            return list(pool.map(function, items))
