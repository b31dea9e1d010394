"""Fused CUDA kernels, written in Triton; each has a plain torch twin that a test compares it with.

Import the modules only where tensors are on a GPU: Triton is not installed with CPU builds. Every
kernel has a name; :func:`without` turns it off and :func:`recorded` tells whether it was used.

A kernel is here because some method takes 1.5 times as long without it on an H200;
``benchmarks/kernels.py`` measures this. Some give less and stay for a reason:

- ``head_attention``, ``relu_dropout`` and ``dropout_norm`` give BrainNetTF 1.3 times each, and 1.8
  times together.
- ``assignment`` works in BRIO's warm-up and validations, which that program does not time. Without
  it every iteration of 60 starts a dozen kernels.
- ``fold_in`` takes the place of two dozen tiny operations for every stream of random numbers. When
  few folds are left, a step waits for such operations.
- ``take`` gives no speed. Without it a captured CUDA graph could not read tables on the host.

These give less alone, and stay for what they give together; ``docs/benchmarks.md`` has the times:

- ``normed_scores``, ``normed_sides`` and ``relu_dropout``, for GSAT. Its epoch with 20 folds took
  7.2 s without kernels for the network on edges, and takes 0.4. ``normed_scores`` keeps what lies
  between the layers short, as ``batch_scores`` does for DisC.
- ``edge_lists``, ``edge_masks`` and ``expert_gin``, on lists of edges, for DiSCO, BrainOOD and
  GSAT.
- ``learnt_graph`` and ``graph_views`` for AGMGC; ``pooling`` and ``self_attention`` for XG-GNN;
  ``dropout_norm``, ``windows`` and ``dropout_gelu`` for DeCI.
- ``median`` for CORE's scaffold, which is made before the steps, and ``node_input`` for BRIO.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

_off: list[frozenset[str]] = []
_used: list[set[str]] = []


@cache
def _available() -> bool:
    try:
        import triton  # noqa: F401
    except ImportError:
        return False
    return True


def at_hand(tensor: Tensor, name: str) -> bool:
    """Whether a kernel can run where this tensor is, whatever the tensor's type."""
    if not tensor.is_cuda or not _available():
        return False
    if any(name in names or not names for names in _off):
        return False
    for names in _used:
        names.add(name)
    return True


def usable(tensor: Tensor, name: str) -> bool:
    """Whether a kernel can work on this tensor: float32, on a GPU, with Triton at hand.

    Kernels count the numbers of a fold in 32 bits.
    """
    small = tensor.dtype == torch.float32 and tensor.numel() < 2**31
    return small and at_hand(tensor, name)


@contextmanager
def without(*names: str) -> Iterator[None]:
    """Use plain torch instead of the kernels of these names, or of all if none is named."""
    _off.append(frozenset(names))
    try:
        yield
    finally:
        _off.pop()


@contextmanager
def recorded() -> Iterator[set[str]]:
    """Collect the names of the kernels that are used."""
    names: set[str] = set()
    _used.append(names)
    try:
        yield names
    finally:
        _used.remove(names)
