"""Randomness that belongs to a purpose and not to a moment.

Every random number is a hash of a key and a position. A key is derived from names such as
(cohort, fold, variant, seed, purpose), so a fold draws the same numbers alone or beside others,
on a CPU or a GPU, before or after an interruption, and inside ``torch.func.vmap``.
"""

import numpy as np
import torch
from torch import Tensor

from brio_core import kernels
from brio_core.system.seeds import derive_seed

_MASK = 0xFFFFFFFF


def torch_generator(*key: object) -> torch.Generator:
    """A CPU torch generator of its own for this key."""
    return torch.Generator().manual_seed(derive_seed(*key))


def _scramble(value: Tensor) -> Tensor:
    # Two multiply-xorshift rounds with the "lowbias32" constants, in int32: its products wrap as
    # those of unsigned numbers do, and a CPU makes four at once where int64 allows one.
    value = _shifted(value, 16).bitwise_xor_(value).mul_(0x7FEB352D)
    value = _shifted(value, 15).bitwise_xor_(value).mul_(0x846CA68B - (1 << 32))
    return _shifted(value, 16).bitwise_xor_(value)


def _shifted(value: Tensor, by: int) -> Tensor:
    # To the right, with zeros from the left; torch would repeat the sign.
    return (value >> by).bitwise_and_(_MASK >> by)


def fold_in(key: Tensor, *numbers: int | Tensor) -> Tensor:
    """A new key from a key and numbers (a step, a stream, a position)."""
    for number in numbers:
        key = _folded(key, number)
    return key


def _folded(key: Tensor, number: int | Tensor) -> Tensor:
    plain = isinstance(number, int) and key.dtype == torch.int64
    if plain and kernels.at_hand(key, "fold_in"):
        from brio_core.kernels.uniform import FoldIn

        return FoldIn.apply(key, number)
    offset = (number * 0x9E3779B9 + (key >> 32)).to(torch.int32)
    return _scramble(_scramble(key.to(torch.int32)) + offset).to(torch.int64) & _MASK


def uniform(key: Tensor, shape: tuple[int, ...], stream: int = 0) -> Tensor:
    """Uniform float32 numbers in [0, 1) for every position of ``shape``.

    ``key`` is an integer tensor that broadcasts against ``shape`` (a scalar for one draw).
    """
    count = int(np.prod(shape))
    if key.ndim == 0:
        return uniform_each(fold_in(key, stream + 1), count).view(shape)
    position = torch.arange(count, device=key.device).view(shape)
    return uniform_at(fold_in(key, stream + 1), position)


def uniform_each(keys: Tensor, count: int) -> Tensor:
    """``count`` uniform float32 numbers in [0, 1) for every key, (*K) to (*K, count)."""
    if kernels.at_hand(keys, "uniform"):
        from brio_core.kernels.uniform import Uniform

        return Uniform.apply(keys, count)
    return uniform_at(keys[..., None], torch.arange(count, device=keys.device))


def uniform_at(key: Tensor, position: Tensor) -> Tensor:
    """Uniform float32 numbers in [0, 1) at given integer positions (both broadcast)."""
    mixed = _scramble(position.to(torch.int32)) ^ key.to(torch.int32)
    hashed = _scramble(mixed.add_(0x9E3779B9 - (1 << 32)))
    # 24 bits fill a float32 mantissa, so 1.0 cannot be reached by rounding.
    return _shifted(hashed, 8).to(torch.float32) * (1.0 / (1 << 24))


def dropout(values: Tensor, probability: float, key: Tensor | None, stream: int = 0) -> Tensor:
    """Inverted dropout whose mask is a function of the key alone; none without a key."""
    if key is None or probability == 0:
        return values
    if key.ndim == 0 and kernels.usable(values, "dropout"):
        from brio_core.kernels.uniform import Dropout

        return Dropout.apply(values, key, stream + 1, probability)
    keep = uniform(key, tuple(values.shape), stream) >= probability
    return values * keep / (1 - probability)
