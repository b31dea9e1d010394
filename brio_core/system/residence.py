"""Where tables with one row per subject live: on the device if they fit, else on the host or disk.

A GPU reads pinned host memory by itself, so what does not fit is streamed, also from within a
captured CUDA graph. On a CPU what does not fit is read from its file. Slower, the same numbers.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brio_core import kernels
from brio_core.system.rows import Rows
from brio_core.system.threads import spread

# Rows that are read at a time when a table moves to where it lives.
ROWS_AT_ONCE = 64


Table = Tensor | Rows


def half_of_free_memory(device: torch.device, limit: int | None = None) -> int:
    """Bytes that may be used for what only saves time.

    On a CPU, ``limit`` is what the process may have in all, such as the memory of its job.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[0] // 2
    # Only Linux states what is free; elsewhere half of what the machine has stands for it.
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    free = stated("/proc/meminfo", "MemAvailable") or total // 2
    if limit is not None:
        free = min(free, limit - stated("/proc/self/status", "VmRSS"))
    return max(0, free) // 2


def stated(path: str, key: str) -> int:
    """Bytes that the system states under a key, 0 where it states none."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return 0
    found = [line.split() for line in lines if line.startswith(f"{key}:")]
    return 1024 * int(found[0][1]) if found else 0


def place_on_device(table: np.ndarray | Rows, device: torch.device, budget: int) -> Table:
    """A table on the device, or if it exceeds ``budget`` in pinned host memory or left as it is."""
    if isinstance(table, np.ndarray):
        tensor = torch.as_tensor(table)
        if device.type == "cuda" and tensor.nbytes > budget:
            return tensor.contiguous().pin_memory()
        return tensor.to(device)
    fits = table.nbytes <= budget
    if device.type == "cpu" and not fits:
        return table
    kind = torch.from_numpy(np.empty(0, table.dtype)).dtype
    if fits:
        home = torch.empty(table.shape, dtype=kind, device=device)
    else:
        home = torch.empty(table.shape, dtype=kind, pin_memory=True)
    for rows in np.array_split(np.arange(len(home)), -(-len(home) // ROWS_AT_ONCE)):
        home[rows[0] : rows[-1] + 1] = torch.from_numpy(table[rows])
    return home


def tabulate(
    make: Callable[[Tensor], dict[str, Tensor]],
    count: int,
    step: int,
    budget: int,
    device: torch.device,
    threaded: bool = False,
) -> dict[str, Tensor] | None:
    """Tables of what ``make`` finds for ``count`` subjects; None where they exceed ``budget``.

    ``make`` is asked for ``step`` subjects at a time, and gives one row for each. If ``threaded``,
    several threads of a CPU ask it at once; what calls stacked modules must not be asked so, for
    these hold the numbers of one call at a time.
    """

    @torch.no_grad()  # which every thread has to be told
    def part(start: int) -> dict[str, Tensor]:
        return make(torch.arange(start, min(start + step, count), device=device))

    first = part(0)
    if sum(value[0].nbytes for value in first.values()) * count > budget:
        return None
    tables = {name: value.new_empty(count, *value.shape[1:]) for name, value in first.items()}

    def fill(start: int) -> None:
        for name, value in (part(start) if start else first).items():
            # A slice is copied; rows by number would be sorted first on a GPU.
            tables[name][start : start + step] = value

    starts = range(0, count, step)
    if threaded:
        spread(fill, starts, device)
    else:
        for start in starts:
            fill(start)
    return tables


def rows_of(table: Table, index: Tensor) -> Tensor:
    """``table[index]`` on the device of the index, wherever the table lives."""
    if not isinstance(table, Tensor):
        rows = torch.from_numpy(table[index.flatten().cpu().numpy()])
        return rows.unflatten(0, index.shape).to(index.device)
    if table.device == index.device:
        return table[index]
    if kernels.at_hand(index, "take") and table.is_pinned():
        from brio_core.kernels.take import take

        return take(table, index.flatten()).unflatten(0, index.shape)
    return table[index.to(table.device)].to(index.device)


def gather(tables: Mapping[str, Table], index: Tensor) -> dict[str, Tensor]:
    """The same rows of several tables."""
    return {name: rows_of(table, index) for name, table in tables.items()}
