"""Rows of a large tensor, copied at the speed of memory."""

import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import power_of_2

BLOCK = 4096


@triton.jit
def _take(source, index, out, width, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    row = tl.load(index + place).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    keep = column < width
    value = tl.load(source + row * width + column, mask=keep)
    tl.store(out + place * width + column, value, mask=keep)


def take(source: Tensor, index: Tensor) -> Tensor:
    """``source[index]`` for a contiguous source (N, ...) and an index (M,) on the device.

    The source may lie in pinned host memory.
    """
    width = source[0].numel()
    out = source.new_empty((len(index), *source.shape[1:]), device=index.device)
    block = min(BLOCK, power_of_2(width))
    _take[(len(index), triton.cdiv(width, block))](source, index, out, width, BLOCK=block)
    return out
