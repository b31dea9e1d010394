"""The cross-site scaffold: edges whose diagnostic effect is reproduced at every site.

Every training site has a Huber regression per edge of its own, on the full sample and on bootstrap
resamples. It uses that site alone, so folds share it; a fold pools its own training sites.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from brio_core import kernels
from brio_core.connectivity.graphs import true_median, upper_triangle
from brio_core.methods.interface import Features
from brio_core.system.devices import float32_products
from brio_core.system.seeds import numpy_generator

LEAST_PER_CLASS = 5
# A regression has at least so many subjects more than columns, or does without covariates.
SPARE_SUBJECTS = 5
# Values held at once: what fits a processor's cache, and what keeps a GPU busy.
VALUES_AT_ONCE = {"cpu": 1 << 20, "cuda": 1 << 26}


class Group(NamedTuple):
    """Subjects of one regression: their rows, sites (from 0) and labels."""

    rows: Tensor
    site: Tensor
    label: Tensor


class Effects(NamedTuple):
    """What a regression per edge finds.

    Diagnostic ``effect`` (R, E) of the full sample and R - 1 resamples. Of the full sample, its
    squared standard error ``variance`` (E,) and ``slopes`` of the covariates (E, C), NaN for those
    left out. ``size`` is the number of subjects.
    """

    effect: Tensor
    variance: Tensor
    slopes: Tensor
    size: int


def site_groups(fold: Group) -> list[Group]:
    """One group per training site with enough subjects of both classes.

    If there are fewer than two such sites, one group of all training subjects.
    """
    sites = [fold.site == one for one in fold.site.unique()]
    chosen = [
        there for there in sites if fold.label[there].bincount(minlength=2).min() >= LEAST_PER_CLASS
    ]
    if len(chosen) < 2:
        return [fold]
    return [
        Group(fold.rows[there], torch.zeros_like(fold.site[there]), fold.label[there])
        for there in chosen
    ]


def resamples(group: Group, count: int) -> np.ndarray:
    """Positions (1 + count, n): the sample itself, then resamples within site and class.

    Drawn for these subjects, whichever fold asks.
    """
    generator = numpy_generator("core", "bootstrap", *group.rows.tolist())
    stratum = (2 * group.site + group.label).cpu().numpy()
    draws = np.tile(np.arange(len(stratum)), (1 + count, 1))
    for one in np.unique(stratum):
        members = np.flatnonzero(stratum == one)
        chosen = generator.integers(len(members), size=(count, len(members)))
        draws[1:, members] = members[chosen]
    return draws


def regressions(group: Group, fc: Tensor, covariates: Tensor, count: int) -> Effects:
    """Regress every edge on site, label and covariates of the group's subjects."""
    intercepts = (group.site[:, None] == group.site.unique()).to(fc.dtype)
    columns, scale = _standardised(covariates, intercepts.shape[1])
    label = group.label[:, None].to(fc.dtype)
    design = torch.cat([intercepts, label, columns.to(fc.dtype)], 1)
    place = intercepts.shape[1]
    edges = upper_triangle(fc)
    # Intercepts absorb the means anyway; without them float32 keeps its digits for the rest.
    edges = edges - intercepts @ ((intercepts.mT @ edges) / intercepts.sum(0)[:, None])
    draws = torch.as_tensor(resamples(group, count), device=fc.device)
    step = max(1, VALUES_AT_ONCE[fc.device.type] // draws.numel())
    parts = [
        huber_regression(part[draws].mT.contiguous(), design[draws])
        for part in edges.split(step, 1)
    ]
    coefficients, variances = (torch.cat(side, -1) for side in zip(*parts))
    slopes = torch.full((edges.shape[1], len(scale)), torch.nan, device=fc.device)
    used = scale > 0
    slopes[:, used] = coefficients[0, place + 1 :].T / scale[used].to(fc.dtype)
    # A resample of a small site has so few different subjects that it is fitted almost exactly:
    # its own standard error would let it outweigh all other sites.
    return Effects(coefficients[:, place], variances[0, place], slopes, len(edges))


def _standardised(covariates: Tensor, n_sites: int) -> tuple[Tensor, Tensor]:
    """Columns that vary, standardised with unknown values at the mean; deviations, else zero."""
    values = covariates.double()
    known = values.isfinite()
    count = known.sum(0).clamp_min(1)
    mean = values.where(known, 0).sum(0) / count
    centred = (values - mean).where(known, 0)
    scale = (centred.square().sum(0) / count).sqrt()
    scale = scale.where(scale > 1e-6 * (1 + mean.abs()), 0)
    used = scale > 0
    if len(values) < n_sites + 1 + int(used.sum()) + SPARE_SUBJECTS:
        used = torch.zeros_like(used)
    return centred[:, used] / scale[used], scale.where(used, 0)


def pool(groups: Sequence[Effects]) -> tuple[Tensor, Tensor]:
    """Pooled effect and score of every edge in every resample, (R, E).

    The score is the pooled z value, discounted by the weight of sites whose effect has another
    sign: half of them against it leave nothing.
    """
    effects = torch.stack([group.effect for group in groups])
    # An effect that could not be told from others is zero, and certain of nothing.
    precision = 1 / torch.stack([group.variance for group in groups]).clamp_min(1e-18)[:, None]
    total = precision.sum(0)
    effect = (effects * precision).sum(0) / total
    weight = effects.new_tensor([group.size for group in groups]).sqrt()[:, None, None]
    agreement = (weight * (effects.sign() == effect.sign())).sum(0) / weight.sum()
    return effect, effect.abs() * total.sqrt() * (2 * agreement - 1).clamp_min(0)


def stability(scores: Tensor, wanted: int) -> Tensor:
    """Share of resamples (R, E) in which an edge is among the ``wanted`` with the highest score."""
    last = scores.topk(wanted, dim=-1).values[:, -1:]
    # Edges without any score are among the first of none.
    return ((scores >= last) & (scores > 0)).to(scores.dtype).mean(0)


def fold_statistics(groups: Sequence[Effects], wanted: int) -> Features:
    """Of every edge: stability, score, pooled effect, and median slopes over sites (E, C)."""
    effect, score = pool(groups)
    slopes = torch.stack([group.slopes for group in groups]).nanquantile(0.5, 0)
    return {
        "stability": stability(score[1:], wanted),
        "score": score[0],
        "effect": effect[0],
        "slopes": slopes.nan_to_num(0.0),
    }


def scaffold_statistics(
    folds: Sequence[Group], inputs: Callable[[Tensor], Features], count: int, wanted: int
) -> list[Features]:
    """:func:`fold_statistics` of every fold; the same subjects are regressed once.

    ``inputs`` gives FC and covariates of rows, ``count`` is the number of resamples.
    """
    plans = [{tuple(g.rows.tolist()): g for g in site_groups(fold)} for fold in folds]
    last_use = {key: number for number, plan in enumerate(plans) for key in plan}
    known: dict[tuple[int, ...], Effects] = {}
    found = []
    for number, plan in enumerate(plans):
        for key, group in plan.items():
            if key not in known:
                chosen = inputs(group.rows)
                known[key] = regressions(group, chosen["fc"], chosen["covariates"], count)
        found.append(fold_statistics([known[key] for key in plan], wanted))
        for key in plan:
            if last_use[key] == number:
                del known[key]
    return found


# Residuals beyond so many deviations count less; 95 % efficient for normal noise.
TUNING = 1.345
# The median absolute value of a standard normal variable.
NORMAL_MEDIAN = 0.6745
SMALLEST_SCALE = 1e-6
RIDGE = 1e-6
# A column of which the others leave a smaller share is one of them: float32 cannot tell.
ALIASED = 1e-4


def huber_regression(values: Tensor, design: Tensor, iterations: int = 10) -> tuple[Tensor, Tensor]:
    """Coefficients and their squared standard errors, both (R, q, E).

    Least squares, then iterations that reweigh by the residuals' median absolute value. A column
    that the columns before it explain gets the coefficient zero.

    Parameters
    ----------
    values : (R, E, n), E outcomes in each of R samples
    design : (R, n, q), the columns of each sample
    """
    columns = design.shape[-1]
    products = (design[..., :, None] * design[..., None, :]).flatten(-2).mT
    ridge = RIDGE * torch.eye(columns, dtype=values.dtype, device=values.device)[..., None]

    def solve(weights: Tensor) -> tuple[Tensor, Tensor]:
        gram = (products @ weights.mT).unflatten(-2, (columns, columns)) + ridge
        inverse = swept_inverse(gram)
        moments = design.mT @ (weights * values).mT
        return (inverse * moments[..., None, :, :]).sum(-2), inverse

    # Statistics are no place for TF32.
    with float32_products(exact=True):
        coefficients, _ = solve(torch.ones_like(values))
        for _ in range(iterations):
            residuals = (values - coefficients.mT @ design.mT).abs_()
            scale = _row_medians(residuals).div_(NORMAL_MEDIAN).clamp_min_(SMALLEST_SCALE)
            weights = (TUNING * scale[..., None]) / residuals.clamp_min_(1e-30)
            coefficients, inverse = solve(weights.clamp_max_(1))
    diagonal = inverse.diagonal(dim1=-3, dim2=-2).mT
    return coefficients, scale.square()[..., None, :] * diagonal


def _row_medians(values: Tensor) -> Tensor:
    """Medians of the rows of non-negative values (..., n)."""
    if kernels.usable(values, "median"):
        from brio_core.kernels.median import LONGEST, Median

        if values.shape[-1] <= LONGEST:
            return Median.apply(values)
    return true_median(values, -1)


def swept_inverse(gram: Tensor) -> Tensor:
    """Inverses of symmetric matrices (..., q, q, E), by Gauss and Jordan's elimination.

    Rows and columns of what the columns before explain are zero.
    """
    gram = gram.clone()
    least = ALIASED * gram.diagonal(dim1=-3, dim2=-2)
    for column in range(gram.shape[-2]):
        pivot = gram[..., column, column, :]
        factor = torch.where(pivot > least[..., column], 1 / pivot, 0)
        row = gram[..., column, :, :] * factor[..., None, :]
        others = gram[..., :, column, :].clone()
        gram.sub_(others[..., :, None, :] * row[..., None, :, :])
        gram[..., column, :, :] = row
        gram[..., :, column, :] = others.neg_().mul_(factor[..., None, :])
        gram[..., column, column, :] = factor
    return gram
