"""Mixup (Zhang et al., 2018): a batch is blended with a shuffled copy of itself."""

from typing import NamedTuple

import torch
from torch import Tensor

from brio_core.system.randomness import uniform


class Blend(NamedTuple):
    """How much of itself every row keeps (a scalar), and whom the rest comes from, (B,)."""

    share: Tensor
    partner: Tensor


def draw_blend(key: Tensor, count: int, stream: int = 0) -> Blend:
    """One share from Beta(1, 1) and one permutation for a batch; takes two streams."""
    return Blend(uniform(key, (), stream), uniform(key, (count,), stream + 1).argsort())


def mix(values: Tensor, blend: Blend) -> Tensor:
    """``share * values + (1 - share) * values[partner]`` along the first axis."""
    return torch.lerp(values[blend.partner], values, blend.share)
