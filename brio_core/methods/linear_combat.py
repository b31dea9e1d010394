"""l2 logistic regression on connectivity that ComBat has harmonised over sites.

ComBat is fitted on the training sites and keeps what age and sex explain; labels take no part.
Validation and test sites are harmonised by their own unlabelled scans.
"""

from dataclasses import dataclass
from typing import ClassVar

from brio_core.cohorts.stores import Rois
from brio_core.connectivity import KINDS
from brio_core.methods.linear.method import (
    BY_ITS_SCANS,
    LogisticHyperparameters,
    StandardisedEdges,
)
from brio_core.methods.linear.sites import Combat


@dataclass(frozen=True)
class LinearCombatHyperparameters(LogisticHyperparameters):
    """Those of the plain row."""

    kinds: ClassVar[tuple[str, ...]] = KINDS


class LinearCombat(StandardisedEdges):
    """Standardised edges after ComBat, and one weight for each."""

    name = "linear-combat"
    Hyperparameters = LinearCombatHyperparameters
    needs = ("fc", "covariates", "site_number")

    @classmethod
    def notes(cls, rois: Rois, hyperparameters: LinearCombatHyperparameters) -> list[str]:
        return [f"Each new site is harmonised {BY_ITS_SCANS}."]

    def site_view(self, n_features: int) -> Combat:
        return Combat(n_features)
