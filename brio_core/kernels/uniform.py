"""Uniform numbers in one pass over memory; torch, without unsigned integers, needs a dozen.

Bit for bit the numbers of :func:`brio_core.system.randomness.uniform`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Constant

BLOCK = 1024


@triton.jit
def _scramble(value):
    value = (value ^ (value >> 16)) * 0x7FEB352D
    value = (value ^ (value >> 15)) * 0x846CA68B
    return value ^ (value >> 16)


@triton.jit
def _hashed(place, key):
    """The first 24 bits of 32 are a number of a key (with its stream folded in, uint32)."""
    return _scramble((_scramble(place.to(tl.uint32)) ^ key) + 0x9E3779B9)


@triton.jit
def keeps(place, key, rate):
    """At which places dropout keeps what is there: where the number there is at least the rate.

    Compared as integers, which is the same and saves the way to floating point.
    """
    return _hashed(place, key) >= tl.ceil(rate * 16777216.0).to(tl.uint32) << 8


@triton.jit
def _uniform(keys, out, count, BLOCK: tl.constexpr):
    fold = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + fold).to(tl.uint32)
    number = (_hashed(place, key) >> 8).to(tl.float32) * (1.0 / 16777216.0)
    tl.store(out + fold * count + place, number, mask=place < count)


class Uniform(Constant):
    """``count`` numbers for every key, (*K) to (*K, count)."""

    @staticmethod
    def run(keys: Tensor, count: int) -> Tensor:
        out = torch.empty(*keys.shape, count, dtype=torch.float32, device=keys.device)
        _uniform[(triton.cdiv(count, BLOCK), keys.numel())](keys, out, count, BLOCK=BLOCK)
        return out
