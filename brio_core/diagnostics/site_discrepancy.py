"""How far apart the source sites are in the representation, class by class."""

from itertools import combinations

from torch import Tensor
from torch.nn import functional

from brio_core.transport import self_transport_cost, squared_distances, transport_cost


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
        groups = [points[(site == one) & (label == side)] for one in sites]
        groups = [group for group in groups if len(group)]
        # Nothing is reweighted by pair, so a site's self-transport is needed only once.
        own = [
            self_transport_cost(squared_distances(group, group), epsilon, iterations)
            for group in groups
        ]
        for one, other in combinations(range(len(groups)), 2):
            cost = squared_distances(groups[one], groups[other])
            cross = transport_cost(cost, epsilon, iterations)
            total = total + cross - (own[one] + own[other]) / 2
    return total / (len(sites) * (len(sites) - 1))
