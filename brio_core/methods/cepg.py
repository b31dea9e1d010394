"""CEPG, reimplemented: environment-guided learning of features that all sites share.

CEPG (Wang et al., 2026) has neither code nor a text that we could read: the BRIO paper has one
sentence on it. This is a design of ours after that sentence, and its results are no reproduction.
A GCN's representation h is split by a gate into a shared part z = g h, which the classifier
reads, and an environment part s = (1 - g) h, from which a second head tells sites apart. Sites
guide learning through a penalty on features whose class contrast differs between them.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.methods.gcn import Gcn, GcnHyperparameters
from brio_core.methods.hyperparameters import SiteHyperparameters
from brio_core.methods.interface import TRAIN, Batch, Features
from brio_core.methods.layers.environments import mean_over, membership, site_means
from brio_core.methods.stack import FoldStack
from brio_core.methods.training_scans import TrainingScans

# Above this the disagreement is divided by a mean contrast of almost nothing.
LARGEST_DISAGREEMENT = 10.0


@dataclass(frozen=True)
class CepgHyperparameters(SiteHyperparameters, GcnHyperparameters):
    """``guide`` is ``shared`` (class contrasts), ``gap`` or ``grl``; see :class:`Cepg`.

    It joins after ``warmup_share`` of all epochs. Earlier checkpoints are not eligible:
    ``first_epoch`` is raised to the first guided epoch.
    """

    guide: Literal["shared", "gap", "grl"]
    lambda_guide: float
    lambda_environment: float
    environment_hidden: int
    debias: bool
    warmup_share: float

    def __post_init__(self) -> None:
        super().__post_init__()
        first = min(self.epochs, self.warmup_epochs + 1)
        object.__setattr__(self, "first_epoch", max(self.first_epoch, first))

    @property
    def warmup_epochs(self) -> int:
        return int(self.warmup_share * self.epochs)


class Cepg(Gcn):
    """GCN, gate, classifier on z, environment head on s, and one of three guides.

    ``shared`` penalises class contrasts of z that differ between sites. ``gap`` penalises sites
    where a classifier that knows the site beats the one that does not. ``grl`` sends the reversed
    gradient of a second environment head, which reads z, back to the encoder.
    """

    name = "cepg"
    Hyperparameters = CepgHyperparameters

    def __init__(self, hyperparameters: CepgHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        hidden = hyperparameters.hidden
        self.gate = nn.Linear(hidden, hidden)
        if hyperparameters.lambda_environment > 0:
            self.environment_head = self._site_classifier()
        if hyperparameters.guide == "gap":
            # The shape of the classifier, with the site beside z.
            self.site_head = nn.Linear(hidden + n_sites, 1)
        if hyperparameters.guide == "grl":
            self.adversary = self._site_classifier()
            self.register_buffer("progress", torch.zeros(()))

    def _site_classifier(self) -> nn.Sequential:
        s = self.hyperparameters
        return nn.Sequential(
            nn.Linear(s.hidden, s.environment_hidden),
            nn.ReLU(),
            nn.Linear(s.environment_hidden, self.n_sites),
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
        risks = self.site_risks(self.head(shared), batch.label, members)
        risk = mean_over(risks, members.sum(0) > 0)
        gates = site_means(self.gate(represented).sigmoid().mean(-1), members)
        loss, logs = risk, {"risk": risk, "gate": mean_over(gates, members.sum(0) > 0)}
        if s.lambda_environment > 0:
            logs["environment"] = site_cross_entropy(self.environment_head(rest), members)
            loss = loss + s.lambda_environment * logs["environment"]
        logs["guide"] = torch.zeros_like(risk)
        if phase == TRAIN:
            logs["guide"], own = getattr(self, s.guide)(shared, risks, batch.label, members)
            loss = loss + s.lambda_guide * logs["guide"] + own
        return loss, logs

    @classmethod
    def before_step(
        cls,
        stack: FoldStack,
        scans: TrainingScans,
        hyperparameters: Any,
        step: int,
        steps_per_epoch: int,
    ) -> None:
        """Tell an adversary how far training has come."""
        if hyperparameters.guide == "grl":
            stack.buffers["progress"].fill_(step / (hyperparameters.epochs * steps_per_epoch))

    @staticmethod
    def site_risks(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
        """Binary cross-entropy at every site, (E,)."""
        risk = functional.binary_cross_entropy_with_logits(
            logits.squeeze(-1), label.to(logits.dtype), reduction="none"
        )
        return site_means(risk, members)

    # The guides: a penalty, and a loss of their own parameters that does not touch z.

    def shared(
        self, shared: Tensor, risks: Tensor, label: Tensor, members: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Disagreement of class contrasts between sites."""
        contrasts = class_contrasts(shared, label, members)
        disagreement = contrast_disagreement(contrasts, self.hyperparameters.debias)
        return capped(disagreement, LARGEST_DISAGREEMENT), torch.zeros_like(disagreement)

    def gap(
        self, shared: Tensor, risks: Tensor, label: Tensor, members: Tensor
    ) -> tuple[Tensor, Tensor]:
        """How much knowing the site helps, and the loss of the head that knows it."""
        present = members.sum(0) > 0
        frozen = functional.linear(
            torch.cat([shared, members], -1),
            self.site_head.weight.detach(),
            self.site_head.bias.detach(),
        )
        penalty = (risks - self.site_risks(frozen, label, members)).relu()
        learning = self.site_head(torch.cat([shared.detach(), members], -1))
        own = mean_over(self.site_risks(learning, label, members), present)
        return mean_over(penalty, present), own

    def grl(
        self, shared: Tensor, risks: Tensor, label: Tensor, members: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Site classification from z against the encoder, with a strength that grows to 1."""
        strength = 2 / (1 + (-10 * self.progress).exp()) - 1
        told = site_cross_entropy(self.adversary(reversed_gradient(shared, strength)), members)
        return told, torch.zeros_like(told)


def site_cross_entropy(logits: Tensor, members: Tensor) -> Tensor:
    """Cross-entropy of site logits (B, E), averaged over the rows that have a site."""
    return -(members * logits.log_softmax(-1)).sum() / members.sum().clamp_min(1)


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
    for group in (members * side, members * (1 - side)):
        count, mean = group.sum(0), site_means(features, group)
        squares = (group[..., None] * (features[:, None] - mean).square()).sum(0)
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
