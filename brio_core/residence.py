"""Where tables with one row per subject live: on the device if they fit, else on the host.

A GPU reads pinned host memory by itself, so what does not fit is streamed, also from within a
captured CUDA graph: slower, the same numbers.
"""

import os

import numpy as np
import torch
from torch import Tensor

from brio_core import kernels


def half_of_free_memory(device: torch.device) -> int:
    """Bytes that may be taken for what only saves time."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info()[0] // 2
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def reside(array: np.ndarray, device: torch.device, budget: int) -> Tensor:
    """A table as a tensor on the device, or in pinned host memory if it exceeds ``budget``."""
    table = torch.as_tensor(array)
    if device.type == "cuda" and table.nbytes > budget:
        return table.contiguous().pin_memory()
    return table.to(device)


def rows_of(table: Tensor, index: Tensor) -> Tensor:
    """``table[index]`` on the device of the index, wherever the table lives."""
    if table.device == index.device:
        return table[index]
    if kernels.at_hand(index) and table.is_pinned():
        from brio_core.kernels.take import take

        return take(table, index.flatten()).unflatten(0, index.shape)
    return table[index.to(table.device)].to(index.device)
