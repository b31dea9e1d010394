"""What every fused kernel does under ``torch.func.vmap``."""

from typing import Any

from torch import Tensor


def to_front(info: Any, in_dims: tuple, tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Give every tensor the mapped axis in front, also those that all folds share."""
    return [
        tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims)
    ]
