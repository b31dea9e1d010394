"""The two axes of the paper: how far sites are apart, and how much predictions change."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from brio_core.methods.brio.qualification import site_class_statistics
from brio_core.methods.layers.transport import padded_transport, squared_distances

# Costs that are solved at once. Measures of about the same size share a batch: on a CPU padding is
# work, on a GPU a second batch is.
ENTRIES_AT_ONCE = 2**25
SAME_SIZE = {"cpu": 2, "cuda": 1024}


def predictive_variation(
    logits: Tensor, site: Tensor, label: Tensor, stabiliser: float = 1e-8
) -> Tensor:
    """How much predictions change when FC is estimated again, Eq. (app_predictive_variation).

    The logit is treated as the contribution of a single factor: numerator and denominator are the
    D and T of the qualification.

    Parameters
    ----------
    logits : (N, K + 1)
        Position 0 is the full scan.
    site, label : (N,) integers
        Sites counted from 0, each with both classes.
    """
    statistics = site_class_statistics(logits[..., None], site, label)
    return (statistics.variation / (statistics.scale + stabiliser)).mean()


def site_discrepancy(
    representation: Tensor,
    site: Tensor,
    label: Tensor,
    epsilon: float = 0.1,
    iterations: int = 100,
) -> Tensor:
    """Class-conditional site discrepancy D_site, Eq. (app_site_discrepancy).

    Parameters
    ----------
    representation : (N, d)
        Full-scan representations before the classifier; scaled to unit norm here.
    site, label : (N,) integers
        A site that lacks a class is left out of that class's pairs.
    """
    points = functional.normalize(representation, dim=-1)
    sites = site.unique()
    total = points.new_zeros(())
    for side in (0, 1):
        here = label == side
        distance = squared_distances(points[here], points[here])
        groups = [torch.nonzero(site[here] == one).flatten() for one in sites]
        groups = [group for group in groups if len(group)]
        crossed = list(combinations(groups, 2))
        # Nothing is reweighted by pair, so a site's self-transport is needed only once.
        own = [(group, group) for group in groups]
        total = total + _sum_of_transports(distance, crossed, epsilon, iterations)
        selves = _sum_of_transports(distance, own, epsilon, iterations, symmetric=True)
        total = total - selves * (len(groups) - 1) / 2
    return total / (len(sites) * (len(sites) - 1))


def _sum_of_transports(
    distance: Tensor,
    pairs: list[tuple[Tensor, Tensor]],
    epsilon: float,
    iterations: int,
    symmetric: bool = False,
) -> Tensor:
    """OT_epsilon summed over pairs of groups, which are rows of ``distance``."""
    total = distance.new_zeros(())
    for batch in _batches(pairs, SAME_SIZE[distance.device.type]):
        (rows, row_mass), (columns, column_mass) = map(_padded, zip(*batch))
        cost = distance[rows[:, :, None], columns[:, None, :]]
        values = padded_transport(
            cost, row_mass.to(cost), column_mass.to(cost), epsilon, iterations, symmetric
        )
        total = total + values.sum()
    return total


def _batches(pairs: list[tuple[Tensor, Tensor]], base: int) -> Iterator[list]:
    """Pairs whose sizes have as many digits to this base, so many that their costs fit."""
    kinds: dict[tuple[int, ...], list] = {}
    for pair in pairs:
        pair = sorted(pair, key=len)
        digits = tuple(int(np.ceil(np.log(len(group)) / np.log(base) - 1e-9)) for group in pair)
        kinds.setdefault(digits, []).append(pair)
    for alike in kinds.values():
        largest = [max(len(pair[side]) for pair in alike) for side in (0, 1)]
        step = max(1, ENTRIES_AT_ONCE // (largest[0] * largest[1]))
        yield from (alike[start : start + step] for start in range(0, len(alike), step))


def _padded(groups: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Members (B, n) and logarithms of their masses; what pads a smaller group has none."""
    rows = torch.nn.utils.rnn.pad_sequence(groups, batch_first=True)
    sizes = torch.tensor([len(group) for group in groups], device=rows.device)[:, None]
    inside = torch.arange(rows.shape[1], device=rows.device) < sizes
    return rows, torch.where(inside, -sizes.double().log(), -torch.inf)
