"""l2 logistic regression of more subjects than a Gram matrix can be held for.

The design is single precision and only ever read in blocks, so a step costs memory and time in
proportion to the subjects.
"""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from brio_core.methods.linear.exact import NEGLIGIBLE_CURVATURE, Path
from brio_core.system.blocks import sweep
from brio_core.system.threads import Run, workers

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


def logistic_path(design: Tensor, label: Tensor, penalties: Sequence[float]) -> Path:
    """Minimise ``C * sum(log-loss) + |w|^2 / 2`` with a free intercept, for each C in turn.

    Newton's method, each C starting from the solution of the last. Directions come from conjugate
    gradients in single precision and are cut short; gradients, which alone decide where the path
    ends, are in double precision. Arguments and results are those of
    :func:`brio_core.methods.linear.exact.logistic_path`.
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
