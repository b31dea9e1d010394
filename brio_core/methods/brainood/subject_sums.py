"""Masks and errors that all subjects of a batch share, entry by entry of (P, P)."""

from torch import Tensor

from brio_core import kernels


def masked(values: Tensor, mask: Tensor) -> Tensor:
    """``values * mask`` for data (B, P, P), which get no gradient, and a mask (P, P)."""
    if kernels.usable(values):
        from brio_core.kernels.subject_sums import Masked

        return Masked.apply(values, mask)
    return values * mask


def tanh_errors(predicted: Tensor, wanted: Tensor) -> Tensor:
    """Squared errors of tanh, (B, P, P) to sums over subjects (P, P); ``wanted`` is data."""
    if kernels.usable(predicted):
        from brio_core.kernels.subject_sums import TanhErrors

        return TanhErrors.apply(predicted, wanted)
    return (predicted.tanh() - wanted.tanh()).square().sum(0)
