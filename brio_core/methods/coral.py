"""CORAL: Sun & Saenko, Deep CORAL, 2016, across all training sites, on the GCN backbone.

The penalty compares covariances of the representation, with the paper's ``1 / (4 d^2)``. The
covariance in the GOOD and BrainOOD benchmarks lacks a factor n, so that it also penalises
different means; ours does that only when ``mean_term`` asks for it.
"""

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from brio_core.methods.gcn import Gcn, GcnHyperparameters
from brio_core.methods.hyperparameters import SiteHyperparameters
from brio_core.methods.interface import Batch
from brio_core.methods.layers.environments import (
    mean_over,
    mean_site_risk,
    membership,
    site_means,
)


@dataclass(frozen=True)
class CoralHyperparameters(SiteHyperparameters, GcnHyperparameters):
    """The backbone's hyperparameters and the weight of the penalty."""

    penalty_weight: float
    mean_term: bool


class Coral(Gcn):
    """Mean risk over sites, plus the distance between the sites' covariances."""

    name = "coral"
    Hyperparameters = CoralHyperparameters

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        represented = self._encode(batch.features, batch.key, batch.site >= 0)
        logits = self.head(represented).squeeze(-1)
        members = membership(batch.site, self.n_sites)
        moments = site_moments(represented, members)
        risk = mean_site_risk(logits, batch.label, members)
        penalty = coral_penalty(moments, self.hyperparameters.mean_term)
        # Shrinking the representation is the cheapest way to a small penalty: watch its size.
        traces = moments.covariances.diagonal(dim1=-2, dim2=-1).sum(-1)
        sizes = site_means(represented.norm(dim=-1), members)
        logs = {
            "risk": risk,
            "penalty": penalty,
            "representation_norm": mean_over(sizes, members.sum(0) > 0),
            "covariance_trace": mean_over(traces, moments.usable),
        }
        return risk + self.hyperparameters.penalty_weight * penalty, logs


class SiteMoments(NamedTuple):
    """Mean (E, d) and covariance (E, d, d) of every site; ``usable`` (E,) if it has two rows."""

    means: Tensor
    covariances: Tensor
    usable: Tensor


def site_moments(representation: Tensor, members: Tensor) -> SiteMoments:
    """Means and unbiased covariances of a representation (B, d) at every site."""
    counts = members.sum(0)
    means = site_means(representation, members)
    centred = (representation - means[:, None]) * members.T[..., None]
    covariances = centred.mT @ centred / (counts - 1).clamp_min(1)[:, None, None]
    return SiteMoments(means, covariances, counts >= 2)


def mean_squared_distance(values: Tensor, usable: Tensor) -> Tensor:
    """Mean over pairs of usable sites of ``|v_e - v_e'|^2``, values (E, ...); 0 without a pair.

    Distances to the common mean give the same number as all pairs do:
    ``sum_{e<e'} |v_e - v_e'|^2 = E sum_e |v_e - mean|^2``.
    """
    values, usable = values.flatten(1), usable.to(values.dtype)
    count = usable.sum()
    centre = (usable[:, None] * values).sum(0) / count.clamp_min(1)
    spread = (usable[:, None] * (values - centre).square()).sum()
    return 2 * spread / (count - 1).clamp_min(1)


def coral_penalty(moments: SiteMoments, mean_term: bool) -> Tensor:
    """Deep CORAL's ``|C_e - C_e'|_F^2 / (4 d^2)``, averaged over pairs of sites.

    ``mean_term`` adds ``|m_e - m_e'|^2 / d``, as later implementations do and the paper does not.
    """
    width = moments.means.shape[-1]
    penalty = mean_squared_distance(moments.covariances, moments.usable) / (4 * width**2)
    if mean_term:
        penalty = penalty + mean_squared_distance(moments.means, moments.usable) / width
    return penalty
