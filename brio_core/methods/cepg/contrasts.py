"""Whether features separate the classes equally at all sites of a batch.

``members`` (B, E) holds a one where a row belongs to a site; rows of no site count nowhere.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from brio_core.methods.layers.environments import site_means


class Contrasts(NamedTuple):
    """Class contrast of every feature at every site, (E, d), and its sampling variance (E, d).

    ``usable`` (E,) is 1 where the batch holds both classes of the site.
    """

    values: Tensor
    noise: Tensor
    usable: Tensor


def class_contrasts(features: Tensor, label: Tensor, members: Tensor) -> Contrasts:
    """Mean of positive minus mean of negative rows of ``features`` (B, d) at every site."""
    side = label.to(features.dtype)[:, None]
    means, noise, counts = [], [], []
    for cell in (members * side, members * (1 - side)):
        count, mean = cell.sum(0), site_means(features, cell)
        squares = (cell[..., None] * (features[:, None] - mean).square()).sum(0)
        variance = squares / (count - 1).clamp_min(1)[:, None]
        means.append(mean)
        noise.append(variance / count.clamp_min(1)[:, None])
        counts.append(count)
    usable = ((counts[0] > 0) & (counts[1] > 0)).to(features.dtype)
    return Contrasts(means[0] - means[1], noise[0] + noise[1], usable)


def contrast_disagreement(contrasts: Contrasts, debias: bool, guard: float = 1e-6) -> Tensor:
    """``sum_k Var_e(c_ek) / (sum_k mean_e(c_ek)^2 + guard)`` over usable sites; 0 below two.

    ``debias`` takes off the variance that sampling alone would give to each feature.
    """
    usable = contrasts.usable[:, None]
    count = usable.sum()
    mean = (usable * contrasts.values).sum(0) / count.clamp_min(1)
    variance = (usable * (contrasts.values - mean).square()).sum(0) / count.clamp_min(1)
    if debias:
        noise = (usable * contrasts.noise).sum(0) / count.clamp_min(1)
        variance = (variance - noise).clamp_min(0)
    ratio = variance.sum() / (mean.square().sum() + guard)
    return torch.where(count >= 2, ratio, 0)


def capped(value: Tensor, limit: float) -> Tensor:
    """``min(value, limit)`` whose gradient is scaled above the limit instead of vanishing."""
    return value * (limit / value.detach().clamp_min(limit))


def reversed_gradient(values: Tensor, strength: Tensor) -> Tensor:
    """The values themselves, with ``-strength`` times their gradient."""
    constant = values.detach()
    return constant - strength * (values - constant)
