"""Kinds of connectivity that are made of Fisher-z matrices, scan by scan.

Every kind but Fisher z begins with the correlations R, shrunk towards the identity:
``(1 - s) R + s I``. For s > 0 it is positive definite, also where a scan has fewer frames than
ROIs. A ROI without signal has correlations of zero, and so has it in every kind. The tangent space,
whose reference is fitted, is in :mod:`brio_core.connectivity.tangent`.
"""

import math

import torch
from torch import Tensor

from brio_core.connectivity import FISHER_Z, LOGARITHM, PARTIAL
from brio_core.connectivity.fisher_z import without_diagonal

# What a polynomial may leave out of a matrix function, relative to its largest entries.
POLYNOMIAL_ERROR = 1e-8


def connectivity_of(
    fisher_z: Tensor, kind: str, shrinkage: float, precision: torch.dtype = torch.float64
) -> Tensor:
    """Connectivity (..., P, P) of a kind, with zeros on the diagonal, in the type it is given in.

    Parameters
    ----------
    fisher_z : (..., P, P)
    kind : one of :data:`brio_core.connectivity.KINDS`
    shrinkage : s, above 0 and at most 1; Fisher z has none
    precision : in which it is computed; single precision takes half the time
    """
    if kind == FISHER_Z:
        return fisher_z
    function = {LOGARITHM: logarithm, PARTIAL: partial_correlation}[kind]
    found = function(shrunk_correlation(fisher_z, shrinkage, precision), shrinkage)
    return without_diagonal(found).to(fisher_z.dtype)


def shrunk_correlation(
    fisher_z: Tensor, shrinkage: float, precision: torch.dtype = torch.float64
) -> Tensor:
    """``(1 - s) R + s I``."""
    correlation = without_diagonal(fisher_z.to(precision).tanh())
    identity = torch.eye(correlation.shape[-1], dtype=correlation.dtype, device=correlation.device)
    return (1 - shrinkage) * correlation + identity


def logarithm(matrix: Tensor, lowest: float) -> Tensor:
    """The logarithm of symmetric matrices (..., P, P) whose eigenvalues are at least ``lowest``.

    On a CPU by eigenvectors. A GPU takes a polynomial, which needs products of matrices only: it is
    faster there and may stand within a captured step.
    """
    if matrix.device.type == "cpu":
        return _by_eigenvectors(matrix, lowest, torch.log)
    # The Chebyshev series of log on [a, b] is log(m) - 2 sum (-r)^k / k T_k.
    return chebyshev(
        matrix,
        lowest,
        lambda low, high: ((low.sqrt() + high.sqrt()) / 2).square().log(),
        lambda low, high, ratio, degree: -2 * (-ratio).pow(degree) / degree,
    )


def inverse(matrix: Tensor, lowest: float) -> Tensor:
    """The inverse of such matrices, in the same way as :func:`logarithm`."""
    if matrix.device.type == "cpu":
        return _by_eigenvectors(matrix, lowest, torch.reciprocal)
    # The Chebyshev series of 1 / x on [a, b] is (1 + 2 sum (-r)^k T_k) / sqrt(a b).
    return chebyshev(
        matrix,
        lowest,
        lambda low, high: (low * high).rsqrt(),
        lambda low, high, ratio, degree: 2 * (-ratio).pow(degree) * (low * high).rsqrt(),
    )


def partial_correlation(matrix: Tensor, lowest: float) -> Tensor:
    """Correlation of two ROIs given all others, ``-K_uv / sqrt(K_uu K_vv)`` with K the inverse."""
    precision = inverse(matrix, lowest)
    scale = precision.diagonal(dim1=-2, dim2=-1).rsqrt()
    return -precision * scale[..., :, None] * scale[..., None, :]


def _by_eigenvectors(matrix: Tensor, lowest: float, function) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    # No eigenvalue is smaller but by rounding.
    return (vectors * function(values.clamp(min=lowest / 2))[..., None, :]) @ vectors.mT


def chebyshev(matrix: Tensor, lowest: float, constant, coefficient) -> Tensor:
    """A function of symmetric matrices (..., P, P) by its Chebyshev series.

    The series is on ``[a, b]``: ``a`` is ``lowest``, ``b`` the largest sum of a matrix's absolute
    rows, which no eigenvalue exceeds. ``coefficient`` gets a, b, the ratio r of the series and a
    degree above 0. The worst matrix that correlations allow decides how many degrees there are.
    """
    n_rois = matrix.shape[-1]
    high = matrix.abs().sum(-1).amax(-1).clamp(min=1.01 * lowest)
    low = torch.full_like(high, lowest)
    ratio = (high.sqrt() - low.sqrt()) / (high.sqrt() + low.sqrt())
    step = max(2, math.isqrt(_degrees(n_rois, lowest)))
    blocks = -(-_degrees(n_rois, lowest) // step)
    series = [coefficient(low, high, ratio, degree) for degree in range(1, (blocks + 1) * step)]
    identity = torch.eye(n_rois, dtype=matrix.dtype, device=matrix.device).expand_as(matrix)
    centre, spread = (low + high)[..., None, None], (high - low)[..., None, None]
    argument = (2 * matrix - centre * identity) / spread
    return _summed([constant(low, high), *series], step, identity, argument)


def _summed(series: list[Tensor], step: int, identity: Tensor, argument: Tensor) -> Tensor:
    """The sum of ``series[k] T_k``, by far fewer products of matrices than there are degrees.

    It is ``sum over j of E_j T_js``, where E_j is a sum of the first ``step`` polynomials: because
    ``2 T_i T_js = T_(js+i) + T_(js-i)``, what T_(js-i) gets too much is taken from its coefficient.
    """
    blocks, series = len(series) // step, list(series)
    for block in range(blocks - 1, 0, -1):
        for degree in range(1, step):
            upper = series[block * step + degree]
            series[block * step - degree] = series[block * step - degree] - upper
            series[block * step + degree] = 2 * upper
    first = [identity, argument]
    while len(first) <= step:
        first.append(2 * argument @ first[-1] - first[-2])
    stride, small = first[step], torch.stack(first[:step], -3)
    weights = torch.stack(series, -1).unflatten(-1, (blocks, step))
    parts = (weights @ small.flatten(-2)).unflatten(-1, identity.shape[-2:])
    after, next_after = torch.zeros_like(argument), torch.zeros_like(argument)
    for block in range(blocks - 1, 0, -1):
        after, next_after = parts[..., block, :, :] + 2 * stride @ after - next_after, after
    return parts[..., 0, :, :] + stride @ after - next_after


def _degrees(n_rois: int, lowest: float) -> int:
    root = math.sqrt((lowest + (1 - lowest) * n_rois) / lowest)
    ratio = (root - 1) / (root + 1)
    return math.ceil(math.log(POLYNOMIAL_ERROR) / math.log(max(ratio, 0.1)))
