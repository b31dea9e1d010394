"""Fused CUDA kernels, written in Triton; each has a plain torch twin that a test compares it with.

Import the modules only where tensors are on a GPU: Triton is not installed with CPU builds.
"""

from functools import cache

from torch import Tensor


@cache
def _available() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def at_hand(tensor: Tensor) -> bool:
    """Whether fused kernels can run where this tensor is, whatever its type."""
    return tensor.is_cuda and _available()


def usable(tensor: Tensor) -> bool:
    """Whether fused kernels can work on this tensor: float32, on a GPU, with Triton at hand."""
    import torch

    return at_hand(tensor) and tensor.dtype == torch.float32
