"""Stretches of scans that differ in length, filters along time, and mixup of a batch.

Scans are (B, T, P), zero beyond the ``frames`` (B,) of each. Mixup (Zhang et al., 2018) blends a
batch with a shuffled copy of itself.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brio_core import kernels
from brio_core.system.randomness import uniform


def mirrored_window(series: Tensor, frames: Tensor, start: Tensor, length: int) -> Tensor:
    """``length`` frames of every scan from ``start`` (B,) on.

    A scan that ends before is mirrored to and fro: its last frame is not doubled, and neither is
    the first one on the way back.
    """
    period = (2 * frames - 2).clamp_min(1)[:, None]
    place = (start[:, None] + torch.arange(length, device=series.device)) % period
    index = torch.minimum(place, period - place)
    return series.gather(1, index[..., None].expand(-1, -1, series.shape[-1]))


def standardised(series: Tensor, dim: int) -> Tensor:
    """Mean 0 and variance 1 along an axis; a constant series becomes zero."""
    centred = series - series.mean(dim, keepdim=True)
    return centred * (centred.square().mean(dim, keepdim=True) + 1e-5).rsqrt()


def standardised_windows(
    series: Tensor, frames: Tensor, start: Tensor, length: Tensor, width: int
) -> Tensor:
    """Standardised :func:`mirrored_window` of every region first, (P, B, width).

    Windows have ``length`` frames, a tensor, and zeros up to ``width``. Scans get no gradient.
    """
    if kernels.usable(series, "windows"):
        from brio_core.kernels.windows import Windows

        return Windows.apply(series, frames, start, length, width)
    window = mirrored_window(series.detach(), frames, start, width)
    inside = (torch.arange(width, device=series.device) < length)[:, None]
    mean = (window * inside).sum(1, keepdim=True) / length
    centred = (window - mean) * inside
    scale = (centred.square().sum(1, keepdim=True) / length + 1e-5).rsqrt()
    return (centred * scale).permute(2, 0, 1)


def shifted(rows: Tensor, count: int, step: int) -> Tensor:
    """``count`` copies of rows (..., w), copy i moved right by ``i * step``.

    A convolution by such an operator is a product, and a product is batched over folds. The result
    (..., count, w + (count - 1) step) is zero elsewhere. Copies are padded, and the padding is read
    as if lines were shorter: no index, so no scatter in the backward pass.
    """
    width = rows.shape[-1] + (count - 1) * step
    copies = rows[..., None, :].expand(*rows.shape[:-1], count, rows.shape[-1])
    padded = functional.pad(copies, (0, width + step - rows.shape[-1])).flatten(-2)
    return padded[..., : count * width].unflatten(-1, (count, width))


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
