"""The tangent space of covariance matrices at their geometric mean."""

import math
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor

from brio_core.connectivity.fisher_z import standardise
from brio_core.system.blocks import column_means
from brio_core.system.threads import one_thread

Each = Callable[[Callable[[slice, Tensor], None]], None]

# Matrices at a time: enough to hide the cost of a call, few enough for the cache.
CHUNK = 16
# The curvature is needed roughly only, so about this many subjects stand for all.
CURVATURE_SUBJECTS = 128


@one_thread()
def ledoit_wolf(series: Tensor, frames: Tensor) -> Tensor:
    """Shrunk covariance matrices (B, P, P) of z-scored scans; float64.

    Parameters
    ----------
    series : (B, T_max, P)
        Frames beyond those of a scan are ignored.
    frames : (B,)
    """
    present = torch.arange(series.shape[-2], device=series.device) < frames[:, None]
    scan = standardise(series.double().where(present[..., None], torch.nan))
    count, rois = frames.double(), series.shape[-1]
    sample = scan.mT @ scan / count[:, None, None]
    level = sample.diagonal(dim1=-2, dim2=-1).mean(-1)
    square = sample.square().sum((-1, -2))
    # Mean squared distances: of single frames to the sample covariance, of that to the target.
    noise = (scan.square().sum(-1).square().sum(-1) / count - square) / count
    distance = square - rois * level.square()
    share = torch.minimum(noise, distance) / distance.where(distance > 0, 1)
    share = share[:, None, None]
    target = level[:, None, None] * torch.eye(rois, dtype=sample.dtype, device=sample.device)
    return (1 - share) * sample + share * target


@one_thread()
def log_vectors(covariance: Tensor, whitening: Tensor) -> Tensor:
    """``logm(W C W)`` as vectors (..., P (P + 1) / 2): the lower triangle, the diagonal by sqrt 2.

    Up to one common factor, their inner products are those of the matrices.
    """
    values, vectors = torch.linalg.eigh(whitening @ covariance @ whitening)
    return _to_vector(_matrix(torch.log, values, vectors))


def tangent_space(
    each: Each, vectors: Tensor, tolerance: float = 1e-7, iterations: int = 30
) -> Tensor:
    """The tangent space at the geometric mean G of symmetric positive definite matrices.

    From the arithmetic mean along the mean tangent vector, each component divided by its curvature
    and the steps combined by Anderson acceleration: a third of the steps of plain descent. It ends
    when the norm of the mean tangent vector per matrix entry is below ``tolerance``.

    Parameters
    ----------
    each : calls a function with the rows and the matrices (n, P, P), float64, of all subjects
        A few subjects at a time, in any order, as often as it is asked to.
    vectors : (N, P (P + 1) / 2)
        Is filled with the tangent vectors.

    Returns
    -------
    G^-1/2
    """
    mean, chosen = _begin(each, vectors)
    curvature, memory, size, last = None, _Anderson(), 1.0, math.inf
    for _ in range(iterations):
        with one_thread():
            values, basis = torch.linalg.eigh(mean)
            whitening = _matrix(torch.rsqrt, values, basis)
        each(partial(_put_logarithms, vectors, whitening))
        gradient = _to_matrix(column_means(vectors))
        with one_thread():
            norm = float(torch.linalg.matrix_norm(gradient)) / gradient.numel()
            if norm < tolerance:
                return whitening
            if norm > last:
                size, memory = size / 2, _Anderson()
            last = norm
            if curvature is None:
                curvature = _Curvature(chosen, whitening, basis)
            step = memory(size * curvature.divide(gradient))
            root = _matrix(torch.sqrt, values, basis)
            mean = root @ _matrix(torch.exp, *torch.linalg.eigh(step)) @ root
    warnings.warn(
        f"the geometric mean of {len(vectors)} covariance matrices has not converged in "
        f"{iterations} iterations",
        stacklevel=2,
    )
    return whitening


def _put_logarithms(vectors: Tensor, whitening: Tensor, rows: slice, covariances: Tensor) -> None:
    """Put the tangent vectors of some subjects into their rows."""
    vectors[rows] = log_vectors(covariances, whitening)


def _begin(each: Each, room: Tensor) -> tuple[Tensor, Tensor]:
    """The arithmetic mean, by way of ``room`` (N, P (P + 1) / 2), and the curvature's subjects."""
    row, column = _lower_triangle(room)
    step = max(1, len(room) // CURVATURE_SUBJECTS)
    chosen: dict[int, Tensor] = {}

    def take(rows: slice, covariances: Tensor) -> None:
        room[rows] = covariances[:, row, column]
        for index in range(-(-rows.start // step) * step, rows.stop, step):
            chosen[index] = covariances[index - rows.start].clone()

    each(take)
    mean = column_means(room)
    matrix = mean.new_zeros(int(row[-1]) + 1, int(row[-1]) + 1)
    matrix[row, column] = mean
    matrix[column, row] = mean
    return matrix, torch.stack([chosen[index] for index in sorted(chosen)])


class _Curvature:
    """The diagonal of the squared distances' Hessian, in the eigenvectors of the first mean."""

    def __init__(self, chosen: Tensor, whitening: Tensor, basis: Tensor) -> None:
        parts = [self._of(part, whitening, basis) for part in chosen.split(CHUNK)]
        self._basis = basis
        self._diagonal = torch.stack(parts).sum(0) / len(chosen)

    @staticmethod
    def _of(covariances: Tensor, whitening: Tensor, basis: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(whitening @ covariances @ whitening)
        half = (values.log()[..., :, None] - values.log()[..., None, :]) / 2
        pairs = torch.where(half.abs() > 1e-6, half / torch.tanh(half), 1)
        overlap = (basis.T @ vectors).square()
        return (overlap @ pairs @ overlap.mT).sum(0)

    def divide(self, gradient: Tensor) -> Tensor:
        rotated = self._basis.T @ gradient @ self._basis
        return self._basis @ (rotated / self._diagonal) @ self._basis.T


class _Anderson:
    """Combine a proposed step with earlier ones so that their proposals would cancel best."""

    def __init__(self) -> None:
        self._proposals: list[Tensor] = []
        self._steps: list[Tensor] = []

    def __call__(self, proposal: Tensor) -> Tensor:
        step = proposal
        if self._proposals:
            pairs = pairwise([*self._proposals, proposal])
            changes = torch.stack([after - before for before, after in pairs]).flatten(1)
            # Tangent spaces at neighbouring means are taken for one: they differ in second order.
            # By singular values: lstsq on a CPU starts from a permutation that it never sets, so
            # the same numbers do not always give the same bytes.
            fit = torch.linalg.pinv(changes.T) @ proposal.flatten()
            step = proposal - (fit @ (torch.stack(self._steps).flatten(1) + changes)).view_as(step)
            step = (step + step.T) / 2
        self._proposals.append(proposal)
        self._steps.append(step)
        return step


def _matrix(function: Callable[[Tensor], Tensor], values: Tensor, vectors: Tensor) -> Tensor:
    return (vectors * function(values)[..., None, :]) @ vectors.mT


def _to_vector(matrix: Tensor) -> Tensor:
    row, column = torch.tril_indices(*matrix.shape[-2:], device=matrix.device)
    scale = torch.where(row == column, 0.5**0.5, 1.0).to(matrix.dtype)
    return matrix[..., row, column] * scale


def _lower_triangle(vector: Tensor) -> Tensor:
    """Rows and columns of the entries (..., P (P + 1) / 2) of a lower triangle."""
    rois = (math.isqrt(8 * vector.shape[-1] + 1) - 1) // 2
    return torch.tril_indices(rois, rois, device=vector.device)


def _to_matrix(vector: Tensor) -> Tensor:
    row, column = _lower_triangle(vector)
    matrix = vector.new_zeros(int(row[-1]) + 1, int(row[-1]) + 1)
    matrix[row, column] = vector * torch.where(row == column, 0.5**0.5, 1.0)
    return matrix + matrix.T
