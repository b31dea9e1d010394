"""Ridge and logistic regression of more subjects than a Gram matrix can be held for.

The design is single precision and only ever read in blocks, so a step costs memory and time in
proportion to the subjects. Arguments and results are those of the functions in ``exact.py``.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brio_core.methods.linear.exact import NEGLIGIBLE_CURVATURE, Path
from brio_core.system.blocks import sweep
from brio_core.system.threads import Run, workers

# Vectors of a Krylov space, all of which are kept: 64 MB for every set of scales.
MOST_VECTORS = 400
# A fit is finished when this many vectors change no weights by more than this part of their norm.
LATEST_VECTORS = 20
SETTLED = 1e-5
# Weights that still change by more when there are no more vectors differ from the exact ones.
VISIBLE = 1e-2
# A vector that is shorter, relative to the largest eigenvalue, is rounding: the space is complete.
EXHAUSTED = 1e-13
# A direction is good enough when another step would improve its share of the gain by less.
INEXACTNESS = 0.1
# A fit is finished when a Newton step gains less than this part of the objective.
FINISHED = 1e-8
# Conjugate-gradient steps for one penalty; 8,000 made-up scans take 200 on average.
MOST_STEPS = 1000
# What may be left to gain without a word when the steps are used up.
INVISIBLE = 1e-5
# A Newton step that has to be cut to less is noise.
SMALLEST_STEP = 1e-6


def ridge_grid(
    design: Tensor, target: Tensor, sample: Tensor, scales: Tensor, penalties: Sequence[float]
) -> Path:
    """Minimise ``sum(sample * (target - Z w - b)^2) + alpha * |w|^2`` for features Z = X * scale.

    Lanczos' method on the covariance of Z, started from that of Z and the target: one Krylov space
    for all penalties, and those of all scales grow in the same sweeps.
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


def logistic_path(design: Tensor, label: Tensor, penalties: Sequence[float]) -> Path:
    """Minimise ``C * sum(log-loss) + |w|^2 / 2`` with a free intercept, for each C in turn.

    Newton's method, each C starting from the solution of the last. Directions come from conjugate
    gradients in single precision and are cut short; gradients, which alone decide where the path
    ends, are in double precision.
    """
    label = label.double()
    weight, intercept = label.new_zeros(design.shape[1]), label.new_zeros(())
    weights, intercepts = [], []
    with workers(design.device) as run:
        for strength in penalties:
            weight, intercept = _minimise(run, design, label, weight, intercept, strength)
            weights.append(weight)
            intercepts.append(intercept)
    return torch.stack(weights), torch.stack(intercepts)


def _minimise(
    run: Run, design: Tensor, label: Tensor, weight: Tensor, intercept: Tensor, strength: float
) -> tuple[Tensor, Tensor]:
    """Weights and intercept for one penalty, from those of another."""
    steps = 0
    while True:
        here = _Slope.at(run, design, label, weight, intercept, strength)
        there = _Direction.of(run, design, here, MOST_STEPS - steps)
        steps += there.steps
        finished = there.decrease < FINISHED * here.value
        size = 1.0 if finished else _step_size(here, there, label)
        weight, intercept = weight + size * there.weight, intercept + size * there.intercept
        if finished:
            return weight, intercept
        if steps >= MOST_STEPS or size < SMALLEST_STEP:
            if there.decrease > INVISIBLE * here.value:
                warnings.warn(
                    f"the logistic fit with C = {strength:g} has not converged in {steps} steps: "
                    f"one more could lower its objective by a {here.value / there.decrease:.0f}th",
                    stacklevel=4,
                )
            return weight, intercept


class _Slope(NamedTuple):
    """The objective at a point, its gradient, and the curvature of every subject's loss."""

    strength: float
    weight: Tensor
    margin: Tensor
    value: float
    gradient: Tensor
    intercept_gradient: Tensor
    curvature: Tensor
    # Sum over subjects of curvature times features: how weights and intercept act together.
    coupling: Tensor

    @classmethod
    def at(
        cls,
        run: Run,
        design: Tensor,
        label: Tensor,
        weight: Tensor,
        intercept: Tensor,
        strength: float,
    ) -> "_Slope":
        def pull(rows: slice, product: Tensor) -> Tensor:
            probability = torch.sigmoid(product[:, 0] + intercept)
            return torch.stack([probability - label[rows], _curvature(probability)], dim=1)

        product, (residual, coupling) = _unbound(sweep(run, design, weight[:, None], pull))
        margin = product + intercept
        probability = torch.sigmoid(margin)
        return cls(
            strength,
            weight,
            margin,
            _objective(margin, weight, label, strength),
            strength * residual + weight,
            strength * (probability - label).sum(),
            _curvature(probability),
            coupling,
        )


def _unbound(swept: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
    return swept[0][:, 0], swept[1].unbind(1)


def _curvature(probability: Tensor) -> Tensor:
    return (probability * (1 - probability)).clamp(NEGLIGIBLE_CURVATURE)


def _objective(margin: Tensor, weight: Tensor, label: Tensor, strength: float) -> float:
    loss = (functional.softplus(margin) - label * margin).sum()
    return float(strength * loss + weight @ weight / 2)


class _Direction(NamedTuple):
    """Where a Newton step leads, and how fast the objective falls at its beginning."""

    weight: Tensor
    intercept: Tensor
    margin: Tensor
    decrease: float
    steps: int

    @classmethod
    def of(cls, run: Run, design: Tensor, here: _Slope, most_steps: int) -> "_Direction":
        """Conjugate gradients for the weights, the intercept being eliminated."""
        total = here.curvature.sum()
        coarse = here.curvature.to(design.dtype)
        remainder = here.coupling * (here.intercept_gradient / total) - here.gradient
        weight, margin = torch.zeros_like(remainder), torch.zeros_like(here.margin)
        way = remainder
        square, gain, steps = remainder @ remainder, 0.0, 0
        while steps < most_steps and float(square) > 0:
            steps += 1
            shift = (here.coupling @ way) / total

            def bend(rows: slice, product: Tensor, shift: Tensor = shift) -> Tensor:
                return coarse[rows, None] * (product - shift.to(product.dtype))

            product, (bent,) = _unbound(sweep(run, design, way.to(design.dtype)[:, None], bend))
            bent = here.strength * bent + way
            size = square / (way @ bent)
            weight, margin = weight + size * way, margin + size * (product - shift)
            remainder = remainder - size * bent
            gain += float(size * square)
            if steps * float(size * square) <= INEXACTNESS * gain:
                break
            square, last = remainder @ remainder, square
            way = remainder + (square / last) * way
        lift = here.intercept_gradient / (here.strength * total)
        intercept = -lift - (here.coupling @ weight) / total
        decrease = -float(here.gradient @ weight + here.intercept_gradient * intercept)
        return cls(weight, intercept, margin - lift, decrease, steps)


def _step_size(here: _Slope, there: _Direction, label: Tensor) -> float:
    """The largest of 1, 1/2, 1/4, ... with which the objective does not rise."""
    size = 1.0
    while size >= SMALLEST_STEP:
        margin, weight = here.margin + size * there.margin, here.weight + size * there.weight
        if _objective(margin, weight, label, here.strength) <= here.value:
            break
        size /= 2
    return size
