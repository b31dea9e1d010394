"""CORAL: Sun & Saenko, Deep CORAL, 2016, across all training sites, on the GCN backbone.

The penalty compares covariances of the representation, with the paper's ``1 / (4 d^2)``. The
covariance in the GOOD and BrainOOD benchmarks lacks a factor n, so that it also penalises
different means; ours does that only when ``mean_term`` asks for it.
"""

from dataclasses import dataclass

from torch import Tensor

from brio_core.methods.gcn import Gcn, GcnHyperparameters
from brio_core.methods.hyperparameters import SiteHyperparameters
from brio_core.methods.interface import Batch
from brio_core.methods.layers.environments import (
    coral_penalty,
    mean_over,
    mean_site_risk,
    membership,
    site_means,
    site_moments,
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
