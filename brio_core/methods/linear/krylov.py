"""Ridge regression of more subjects than a Gram matrix can be held for.

The design is single precision and only ever read in blocks, so a step costs memory and time in
proportion to the subjects.
"""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from brio_core.methods.linear.exact import Path
from brio_core.system.blocks import sweep
from brio_core.system.threads import workers

# Vectors of a Krylov space, all of which are kept: 64 MB for every set of scales.
MOST_VECTORS = 400
# A fit is finished when this many vectors change no weights by more than this part of their norm.
LATEST_VECTORS = 20
SETTLED = 1e-5
# Weights that still change by more when there are no more vectors differ from the exact ones.
VISIBLE = 1e-2
# A vector that is shorter, relative to the largest eigenvalue, is rounding: the space is complete.
EXHAUSTED = 1e-13


def ridge_grid(
    design: Tensor, target: Tensor, sample: Tensor, scales: Tensor, penalties: Sequence[float]
) -> Path:
    """Minimise ``sum(sample * (target - Z w - b)^2) + alpha * |w|^2`` for features Z = X * scale.

    Lanczos' method on the covariance of Z, started from that of Z and the target: one Krylov space
    for all penalties, and those of all scales grow in the same sweeps. Arguments and results are
    those of :func:`brio_core.methods.linear.exact.ridge_grid`.
    """
    sample, target, scales = sample.double(), target.double(), scales.double()
    with workers(design.device) as run:
        share = sample / sample.sum()
        middle = share @ target
        sides = torch.stack([share, sample * (target - middle)], dim=1)
        nothing = sides.new_empty(design.shape[1], 0)
        centre, start = sweep(run, design, nothing, lambda rows, _: sides[rows])[1].unbind(1)

        def covariance(vectors: Tensor) -> Tensor:
            scaled = (scales * vectors).T.contiguous()
            shift = centre @ scaled

            def weigh(rows: slice, product: Tensor) -> Tensor:
                return sample[rows, None] * (product - shift)

            product, total = sweep(run, design, scaled, weigh)
            rest = sample @ (product - shift)
            return scales * (total - centre[:, None] * rest).T

        weights = shifted_solutions(covariance, scales * start, penalties)
        return weights, middle - torch.einsum("sad,sd->sa", weights, scales * centre)


def shifted_solutions(
    product: Callable[[Tensor], Tensor], start: Tensor, shifts: Sequence[float]
) -> Tensor:
    """``(M_s + shift)^-1 start_s`` for symmetric matrices M_s without negative eigenvalues.

    Parameters
    ----------
    product : the vectors ``M_s v_s`` (S, D) of vectors (S, D)
    start : (S, D)

    Returns
    -------
    (S, len(shifts), D)
    """
    most = min(MOST_VECTORS, start.shape[1])
    basis = start.new_empty(len(start), most, start.shape[1])
    matrix = start.new_zeros(len(start), most, most)
    length = start.norm(dim=1)
    vector, fit = _unit(start, length), start.new_zeros(len(start), len(shifts), 0)
    for count in range(1, most + 1):
        basis[:, count - 1] = vector
        known = basis[:, :count]
        image = product(vector)
        matrix[:, count - 1, count - 1] = (vector * image).sum(1)
        # Twice makes it orthogonal to all earlier vectors up to rounding.
        for _ in range(2):
            image = image - ((known @ image[:, :, None]).mT @ known)[:, 0]
        size = image.norm(dim=1)
        size = size.where(size > EXHAUSTED * matrix.diagonal(dim1=1, dim2=2).amax(1), 0)
        complete = not bool(size.any())
        if count % LATEST_VECTORS == 0 or count == most or complete:
            last, fit = fit, _small_solutions(matrix[:, :count, :count], length, shifts)
            change = _relative_change(last, fit)
            if complete or change < SETTLED:
                break
        if count < most:
            vector = _unit(image, size)
            matrix[:, count - 1, count] = matrix[:, count, count - 1] = size
    if change > VISIBLE and not complete:
        warnings.warn(
            f"{count} Krylov vectors are too few for the weakest penalty of a ridge fit: its "
            f"weights still change by {change:.0%}, so it acts like a stronger penalty",
            stacklevel=3,
        )
    return fit @ known


def _unit(vectors: Tensor, length: Tensor) -> Tensor:
    """Vectors divided by their length; zero where that is."""
    length = length[:, None]
    return torch.where(length > 0, vectors / length.where(length > 0, 1), 0)


def _small_solutions(matrix: Tensor, length: Tensor, shifts: Sequence[float]) -> Tensor:
    """``(T_s + shift)^-1 e_1 length_s``, (S, len(shifts), k)."""
    values, vectors = torch.linalg.eigh(matrix)
    shifted = values.clamp(min=0)[:, None] + values.new_tensor(shifts)[:, None]
    return (length[:, None] * vectors[:, 0])[:, None] / shifted @ vectors.mT


def _relative_change(last: Tensor, fit: Tensor) -> float:
    """The largest distance of two fits, relative to the length of the latter."""
    distance = (fit - functional.pad(last, (0, fit.shape[-1] - last.shape[-1]))).norm(dim=-1)
    length = fit.norm(dim=-1)
    return float((distance / length.where(length > 0, 1)).max())
