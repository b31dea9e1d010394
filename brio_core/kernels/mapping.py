"""What every fused kernel does under ``torch.func``."""

from typing import Any

import torch
from torch import Tensor


class Derivative(torch.autograd.Function):
    """The backward pass of a kernel, which has no derivative of its own.

    A Function all the same, because only a Function can say what ``vmap`` makes of it.
    """

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
        """Nothing is kept."""

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> None:
        raise RuntimeError("fused kernels have no second derivatives")


def to_front(info: Any, in_dims: tuple, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Give every tensor the mapped axis in front, also those that all folds share."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims)
    ]
