"""Series of ROIs: stretches of scans that differ in length, and filters along time.

Scans are (B, T, P), zero beyond the ``frames`` (B,) of each.
"""

import torch
from torch import Tensor
from torch.nn import functional


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
