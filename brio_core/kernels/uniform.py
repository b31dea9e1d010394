"""Uniform numbers in one pass over memory, where torch needs a dozen, and dropout by them.

Bit for bit the numbers of :mod:`brio_core.system.randomness`; torch has no unsigned integers.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Constant, Fused

# Numbers, and keys, that a program makes.
BLOCK, FEW = 1024, 128


@triton.jit
def _scramble(value):
    value = (value ^ (value >> 16)) * 0x7FEB352D
    value = (value ^ (value >> 15)) * 0x846CA68B
    return value ^ (value >> 16)


@triton.jit
def hashed(place, key):
    """The first 24 bits of 32 are a number of a key (with its stream folded in, uint32)."""
    return _scramble((_scramble(place.to(tl.uint32)) ^ key) + 0x9E3779B9)


@triton.jit
def folded(key, number):
    """What ``randomness.fold_in`` makes of a key and a number, as uint32."""
    offset = number.to(tl.uint32) * 0x9E3779B9 + (key >> 32).to(tl.uint32)
    return _scramble(_scramble(key.to(tl.uint32)) + offset)


# Else every stream would be compiled for itself.
@triton.jit(do_not_specialize=["number"])
def _fold_in(keys, out, count, number, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + place, mask=place < count, other=0)
    tl.store(out + place, folded(key, number).to(tl.int64), mask=place < count)


class FoldIn(Constant):
    """What ``randomness.fold_in`` makes of keys (*K) and a number; torch takes two dozen steps."""

    @staticmethod
    def run(keys: Tensor, number: int) -> Tensor:
        out = torch.empty_like(keys)
        _fold_in[(triton.cdiv(keys.numel(), FEW),)](keys, out, keys.numel(), number, BLOCK=FEW)
        return out


@triton.jit
def keeps(place, key, rate):
    """At which places dropout keeps what is there: where the number there is at least the rate.

    Compared as integers, which is the same and saves the way to floating point.
    """
    return hashed(place, key) >= tl.ceil(rate * 16777216.0).to(tl.uint32) << 8


@triton.jit
def _uniform(keys, out, count, BLOCK: tl.constexpr):
    fold = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + fold).to(tl.uint32)
    number = (hashed(place, key) >> 8).to(tl.float32) * (1.0 / 16777216.0)
    tl.store(out + fold * count + place, number, mask=place < count)


class Uniform(Constant):
    """``count`` numbers for every key, (*K) to (*K, count)."""

    @staticmethod
    def run(keys: Tensor, count: int) -> Tensor:
        out = torch.empty(*keys.shape, count, dtype=torch.float32, device=keys.device)
        _uniform[(triton.cdiv(count, BLOCK), keys.numel())](keys, out, count, BLOCK=BLOCK)
        return out


@triton.jit(do_not_specialize=["number"])
def _dropout(values, keys, out, count, number, rate, factor, BLOCK: tl.constexpr):
    fold = tl.program_id(1)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    offset = fold.to(tl.int64) * count + place
    kept = keeps(place, folded(tl.load(keys + fold), number), rate)
    value = tl.load(values + offset, mask=inside, other=0.0)
    # Products in the order of torch's: a zero has the sign that it has there.
    tl.store(out + offset, value * kept.to(tl.float32) * factor, mask=inside)


class Dropout(Fused):
    """Values (*folds, ...) and keys (*folds), into which ``number`` is folded first."""

    @staticmethod
    def run(values: Tensor, keys: Tensor, number: int, rate: float) -> Tensor:
        out, count = torch.empty_like(values), values.numel() // keys.numel()
        # A GPU's torch divides by a number in the same way.
        factor = 1 / (1 - rate)
        _dropout[(triton.cdiv(count, BLOCK), keys.numel())](
            values, keys, out, count, number, rate, factor, BLOCK=BLOCK
        )
        return out

    @staticmethod
    def keep(inputs: tuple, output: Tensor) -> tuple:
        return inputs[1:]

    @classmethod
    def backward(cls, ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        # It is linear, and so its own derivative of any order.
        return cls.apply(grad, *ctx.saved_tensors, *ctx.options), None, None, None
