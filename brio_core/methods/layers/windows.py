"""Stretches of scans that differ in length: (B, T, P), zero beyond the ``frames`` (B,) of each."""

import torch
from torch import Tensor


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
