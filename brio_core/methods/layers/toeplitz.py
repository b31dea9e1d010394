"""Convolutions as matrix products: a product is batched over folds, a convolution is not."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def shifted(rows: Tensor, count: int, step: int) -> Tensor:
    """``count`` copies of rows (..., w), copy i moved right by ``i * step``.

    The result (..., count, w + (count - 1) step) is zero elsewhere. Copies are padded, and the
    padding is read as if lines were shorter: no index, so no scatter in the backward pass.
    """
    width = rows.shape[-1] + (count - 1) * step
    copies = rows[..., None, :].expand(*rows.shape[:-1], count, rows.shape[-1])
    padded = functional.pad(copies, (0, width + step - rows.shape[-1])).flatten(-2)
    return padded[..., : count * width].unflatten(-1, (count, width))


class RunningFilter(nn.Module):
    """A causal filter per channel along the last axis, as long as that axis; at first its mean.

    ``out_j = b + sum_{i <= j} k_{j - i} x_i``, with k = 1 / width and b = 0 to begin with.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.full((channels, width), 1 / width))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, values: Tensor) -> Tensor:
        """Values (channels, B, width) to the same shape."""
        width = self.kernel.shape[-1]
        operator = shifted(self.kernel, width, 1)[..., :width]
        return values @ operator + self.bias[:, None, None]
