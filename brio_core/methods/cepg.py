"""CEPG, reimplemented: environment-guided learning of features that all sites share.

CEPG (Wang et al., 2026) has neither code nor a text that we could read: the BRIO paper has one
sentence on it. This is a design of ours after that sentence, and its results are no reproduction.
A GCN's representation h is split by a gate into a shared part z = g h, which the classifier
reads, and an environment part s = (1 - g) h, from which a second head tells sites apart. Sites
guide learning through a penalty on features whose class contrast differs between them.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from brio_core.methods.gcn import Gcn, GcnHyperparameters
from brio_core.methods.hyperparameters import SiteHyperparameters
from brio_core.methods.interface import TRAIN, Batch, Features
from brio_core.methods.layers.environments import (
    mean_over,
    mean_site_risk,
    membership,
    site_means,
)

# Above this the disagreement is divided by a mean contrast of almost nothing.
LARGEST_DISAGREEMENT = 10.0


@dataclass(frozen=True)
class CepgHyperparameters(SiteHyperparameters, GcnHyperparameters):
    """The penalty that guides learning joins after ``warmup_share`` of all epochs.

    Earlier checkpoints are not eligible: ``first_epoch`` is raised to the first guided epoch.
    """

    lambda_guide: float
    lambda_environment: float
    environment_hidden: int
    warmup_share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        first = min(self.epochs, self.warmup_epochs + 1)
        object.__setattr__(self, "first_epoch", max(self.first_epoch, first))

    @property
    def warmup_epochs(self) -> int:
        return int(self.warmup_share * self.epochs)


class Cepg(Gcn):
    """GCN, gate, classifier on z, environment head on s, and a penalty on contrasts of z."""

    name = "cepg"
    Hyperparameters = CepgHyperparameters

    def __init__(self, hyperparameters: CepgHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        hidden = hyperparameters.hidden
        self.gate = nn.Linear(hidden, hidden)
        if hyperparameters.lambda_environment > 0:
            self.environment_head = nn.Sequential(
                nn.Linear(hidden, hyperparameters.environment_hidden),
                nn.ReLU(),
                nn.Linear(hyperparameters.environment_hidden, n_sites),
            )

    def represent(self, features: Features) -> Tensor:
        """The shared part z."""
        return self.split(self._encode(features, None))[0]

    def split(self, representation: Tensor) -> tuple[Tensor, Tensor]:
        """Shared and environment parts; they add up to the representation."""
        gate = self.gate(representation).sigmoid()
        return gate * representation, (1 - gate) * representation

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.hyperparameters
        represented = self._encode(batch.features, batch.key, batch.site >= 0)
        shared, rest = self.split(represented)
        members = membership(batch.site, self.n_sites)
        risk = mean_site_risk(self.head(shared).squeeze(-1), batch.label, members)
        gates = site_means(self.gate(represented).sigmoid().mean(-1), members)
        loss, logs = risk, {"risk": risk, "gate": mean_over(gates, members.sum(0) > 0)}
        if s.lambda_environment > 0:
            logs["environment"] = site_cross_entropy(self.environment_head(rest), members)
            loss = loss + s.lambda_environment * logs["environment"]
        logs["guide"] = torch.zeros_like(risk)
        if phase == TRAIN:
            disagreement = contrast_disagreement(class_contrasts(shared, batch.label, members))
            logs["guide"] = capped(disagreement, LARGEST_DISAGREEMENT)
            loss = loss + s.lambda_guide * logs["guide"]
        return loss, logs


def site_cross_entropy(logits: Tensor, members: Tensor) -> Tensor:
    """Cross-entropy of site logits (B, E), averaged over the rows that have a site."""
    return -(members * logits.log_softmax(-1)).sum() / members.sum().clamp_min(1)


class Contrasts(NamedTuple):
    """Class contrast of every feature at every site, (E, d).

    ``usable`` (E,) is 1 where the batch holds both classes of the site.
    """

    values: Tensor
    usable: Tensor


def class_contrasts(features: Tensor, label: Tensor, members: Tensor) -> Contrasts:
    """Mean of positive minus mean of negative rows of ``features`` (B, d) at every site."""
    side = label.to(features.dtype)[:, None]
    positive, negative = members * side, members * (1 - side)
    values = site_means(features, positive) - site_means(features, negative)
    usable = (positive.sum(0) > 0) & (negative.sum(0) > 0)
    return Contrasts(values, usable.to(features.dtype))


def contrast_disagreement(contrasts: Contrasts, guard: float = 1e-6) -> Tensor:
    """``sum_k Var_e(c_ek) / (sum_k mean_e(c_ek)^2 + guard)`` over usable sites; 0 below two."""
    usable = contrasts.usable[:, None]
    count = usable.sum()
    mean = (usable * contrasts.values).sum(0) / count.clamp_min(1)
    variance = (usable * (contrasts.values - mean).square()).sum(0) / count.clamp_min(1)
    ratio = variance.sum() / (mean.square().sum() + guard)
    return torch.where(count >= 2, ratio, 0)


def capped(value: Tensor, limit: float) -> Tensor:
    """``min(value, limit)`` whose gradient is scaled above the limit instead of vanishing."""
    return value * (limit / value.detach().clamp_min(limit))
