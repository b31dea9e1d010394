"""IRM: Arjovsky et al., Invariant Risk Minimization (IRMv1), 2019, on the GCN backbone.

The dummy classifier w = 1 never exists: its gradient has a closed form. The authors chose their
hyperparameters on the test environment; here it chooses nothing. Products of gradients of
two different environments, as in some published code, are not IRM and are not taken.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from brio_core.methods.gcn import Gcn, GcnHyperparameters
from brio_core.methods.hyperparameters import SiteHyperparameters
from brio_core.methods.interface import WARM_UP, Batch
from brio_core.methods.layers.environments import (
    mean_over,
    mean_site_risk,
    membership,
    site_means,
)


@dataclass(frozen=True)
class IrmHyperparameters(SiteHyperparameters, GcnHyperparameters):
    """The backbone's, and a penalty whose weight is 1 for ``warmup_share`` of all epochs.

    Earlier checkpoints are not eligible: ``first_epoch`` is raised to the first epoch after them.
    A ``penalty_weight`` up to 1 is the same all the time; there is then no warm-up.
    """

    penalty_weight: float
    warmup_share: float
    estimator: Literal["squared", "split_halves"]

    def __post_init__(self) -> None:
        super().__post_init__()
        first = min(self.epochs, self.warmup_epochs + 1)
        object.__setattr__(self, "first_epoch", max(self.first_epoch, first))

    @property
    def warmup_epochs(self) -> int:
        return int(self.warmup_share * self.epochs) if self.penalty_weight > 1 else 0


class Irm(Gcn):
    """Mean risk over sites, plus the penalty on sites that would like other classifiers."""

    name = "irm"
    Hyperparameters = IrmHyperparameters

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.hyperparameters
        represented = self._encode(batch.features, batch.key, batch.site >= 0)
        logits = self.head(represented).squeeze(-1)
        members = membership(batch.site, self.n_sites)
        risk = mean_site_risk(logits, batch.label, members)
        estimate = irm_penalty if s.estimator == "squared" else irm_penalty_of_halves
        penalty = estimate(logits, batch.label, members)
        weight = min(1.0, s.penalty_weight) if phase == WARM_UP else s.penalty_weight
        # A vanishing logit is the trivial solution of a large weight: watch its size.
        size = mean_over(site_means(logits.abs(), members), members.sum(0) > 0)
        logs = {"risk": risk, "penalty": penalty, "logit_size": size}
        return (risk + weight * penalty) / max(1.0, weight), logs

    @classmethod
    def restarts(cls, hyperparameters: IrmHyperparameters, epoch: int) -> bool:
        # The moments belong to the loss that was divided by another weight.
        return hyperparameters.warmup_epochs > 0 and epoch == hyperparameters.warmup_epochs + 1


def dummy_gradients(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """``dR_e(w)/dw`` at w = 1 for ``R_e(w)``, the cross-entropy of ``w * logits`` at a site, (E,).

    In closed form ``mean_i (sigmoid(z_i) - y_i) z_i``, so no second backward pass is needed.
    """
    return site_means((logits.sigmoid() - label) * logits, members)


def irm_penalty(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """IRMv1: squared gradients of the dummy classifier, averaged over sites."""
    return mean_over(dummy_gradients(logits, label, members).square(), members.sum(0) > 0)


def irm_penalty_of_halves(logits: Tensor, label: Tensor, members: Tensor) -> Tensor:
    """The unbiased estimate of :func:`irm_penalty`: products of two halves; it may be negative.

    Halves take turns within every site and class, so that neither gets one class only. The
    order of subjects within a class must be random, which all samplers see to.
    """
    same = (members @ members.T > 0) & (label[:, None] == label)
    turn = same.tril(-1).sum(-1) % 2
    halves = [members * (turn == side)[:, None] for side in (0, 1)]
    first, second = (dummy_gradients(logits, label, half) for half in halves)
    usable = (halves[0].sum(0) > 0) & (halves[1].sum(0) > 0)
    return mean_over(first * second, usable)
