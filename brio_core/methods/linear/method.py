"""The linear rows of the tables: one weight per feature, fitted to convergence.

Logistic rows read connectivity, its tangent space, or no scan at all; ridge rows give every site
and class the same weight.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brio_core.cohorts.stores import Rois
from brio_core.connectivity import FISHER_Z
from brio_core.connectivity.graphs import upper_triangle
from brio_core.connectivity.kinds import connectivity_of
from brio_core.connectivity.tangent import ledoit_wolf, log_vectors, tangent_space
from brio_core.methods.interface import Features
from brio_core.methods.linear.base import (
    BY_ITS_SCANS,
    LinearMethod,
    LogisticHyperparameters,
    Ridge,
    RidgeHyperparameters,
    SitesHyperparameters,
    StandardisedEdges,
    TrainFeatures,
)
from brio_core.methods.linear.exact import Path
from brio_core.methods.linear.sites import Combat
from brio_core.methods.training_scans import TrainingScans, TrainView
from brio_core.system.blocks import column_means, mean_and_scale, replace_columns
from brio_core.system.threads import one_thread

N_COVARIATES = 3


@dataclass(frozen=True)
class LinearCorrelationHyperparameters(SitesHyperparameters, LogisticHyperparameters):
    """Those of a logistic row that reads edges."""


class LinearCorrelation(StandardisedEdges):
    """l2 logistic regression on Fisher-z FC: what every method has to be compared with."""

    name = "linear-correlation"
    Hyperparameters = LinearCorrelationHyperparameters


class LinearCombat(StandardisedEdges):
    """l2 logistic regression on connectivity that ComBat has harmonised over sites.

    ComBat is fitted on the training sites and keeps what age and sex explain; labels take no part.
    Validation and test sites are harmonised by their own unlabelled scans.
    """

    name = "linear-combat"
    needs = ("fc", "covariates", "site_number")

    @classmethod
    def notes(cls, rois: Rois, hyperparameters: LogisticHyperparameters) -> list[str]:
        return [f"Each new site is harmonised {BY_ITS_SCANS}."]

    def site_view(self, n_features: int) -> Combat:
        return Combat(n_features)


@dataclass(frozen=True)
class OwnHyperparameters(LogisticHyperparameters):
    """For rows that have a representation of their own."""

    kinds: ClassVar[tuple[str, ...]] = (FISHER_Z,)


class LinearTangent(LinearMethod):
    """l2 logistic regression in the tangent space of covariance matrices; Dadi et al. 2019.

    Covariances of z-scored series are shrunk by Ledoit and Wolf's rule, whitened with the geometric
    mean of the training subjects' and mapped by the matrix logarithm. The vectors are nilearn's
    ``ConnectivityMeasure(kind="tangent", vectorize=True)``, centred on training subjects.
    """

    name = "linear-tangent"
    Hyperparameters = OwnHyperparameters
    needs = ("bold", "frames")

    def __init__(self, hyperparameters: LogisticHyperparameters, n_rois: int, n_sites: int) -> None:
        n_features = n_rois * (n_rois + 1) // 2
        super().__init__(hyperparameters, n_rois, n_sites, n_features)
        self.register_buffer("whitening", torch.eye(n_rois, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(n_features))

    def make_features(self, inputs: Features) -> Features:
        return {"covariance": ledoit_wolf(inputs["bold"], inputs["frames"])}

    def design(self, subjects: TrainFeatures, table: Tensor) -> None:
        def each(work: Callable[[slice, Tensor], None]) -> None:
            subjects.each(lambda rows, features: work(rows, features["covariance"]))

        self.whitening.copy_(tangent_space(each, table))
        mean = column_means(table)
        self.mean.copy_(mean)
        replace_columns(table, lambda columns, vectors: vectors - mean[columns])

    def represent(self, features: Features) -> Tensor:
        vectors = log_vectors(features["covariance"], self.whitening)
        return vectors.to(self.mean.dtype) - self.mean


class LinearConfounds(LinearMethod):
    """l2 logistic regression on age, sex and head motion: the level that a scan must beat.

    Covariates are standardised on training subjects, each with an indicator of missing values.

    A missing value stands at the training mean, which is zero. Indicators stay 0 or 1: dividing
    one that is rarely set by its deviation would make few subjects outweigh all others.
    """

    name = "linear-confounds"
    Hyperparameters = OwnHyperparameters
    needs = ("covariates",)

    def __init__(self, hyperparameters: LogisticHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites, 2 * N_COVARIATES)
        self.register_buffer("mean", torch.zeros(N_COVARIATES))
        self.register_buffer("scale", torch.zeros(N_COVARIATES))

    def design(self, subjects: TrainFeatures, table: Tensor) -> None:
        values = table.new_empty(len(table), N_COVARIATES, dtype=self.mean.dtype)

        def fill(rows: slice, features: Features) -> None:
            values[rows] = features["covariates"]

        subjects.each(fill)
        for index, column in enumerate(values.double().unbind(1)):
            known = column[column.isfinite()]
            # A covariate that no training subject has keeps scale zero.
            if len(known):
                with one_thread():
                    mean, scale = mean_and_scale(known[:, None])
                self.mean[index], self.scale[index] = mean[0], scale[0]
        table.copy_(self.represent({"covariates": values}))

    def represent(self, features: Features) -> Tensor:
        known = features["covariates"].isfinite()
        values = ((features["covariates"] - self.mean) * self.scale).where(known, 0)
        return torch.cat([values, (~known).to(values.dtype)], dim=-1)


class LinearLogarithm(Ridge):
    """Ridge regression on the matrix logarithm of the shrunk correlation.

    The logarithm makes correlations that multiply add up. The hyperparameters name this kind of
    connectivity. All source sites train; an inner leave-one-site-out chooses the penalty.
    """

    name = "linear-logarithm"


@dataclass(frozen=True)
class LinearReestimationHyperparameters(RidgeHyperparameters):
    """``powers``, largest first; ``reestimates`` of every scan.

    The path goes through the penalties and within each through the powers. For one penalty, a
    larger power penalises no edge less, so ties still go to the stronger penalty.
    """

    powers: tuple[float, ...]
    reestimates: int


class LinearReestimation(Ridge):
    """Ridge regression on FC that trusts an edge as far as re-estimation supports it.

    The paper's idea in its simplest form: an edge whose within-scan re-estimates change as much (D)
    as subjects differ (V) says nothing about subjects. Each standardised edge is multiplied by
    ``max(0, 1 - D / V) ** power``; D and V are of the fold's training subjects.
    """

    name = "linear-reestimation"
    Hyperparameters = LinearReestimationHyperparameters
    representation_is_shared = False

    @property
    def path_length(self) -> int:
        return len(self.hyperparameters.penalties) * len(self.hyperparameters.powers)

    @classmethod
    def share(
        cls, scans: TrainingScans, hyperparameters: LinearReestimationHyperparameters
    ) -> list[Features]:
        n_rois = scans.inputs(scans.rows[:1, 0])["fc"].shape[-1]
        total = torch.zeros(len(scans.rows), n_rois, n_rois, dtype=torch.float64)
        total = total.to(scans.rows.device)
        kind = hyperparameters.connectivity, hyperparameters.shrinkage
        for rows, folds, fc in scans.reestimates(hyperparameters.reestimates, 0, 1.0, graphs=32):
            full = connectivity_of(scans.inputs(rows)["fc"], *kind)
            change = connectivity_of(fc, *kind) - full[:, None]
            total[folds] += change.square_().mean(1).sum(0)
        subjects = (scans.site >= 0).sum(1)
        return [{"change": upper_triangle(one / n)} for one, n in zip(total, subjects)]

    def scales(self) -> Tensor:
        return torch.stack([self._support**power for power in self.hyperparameters.powers])

    def solve(self, design: Tensor, train: TrainView) -> Path:
        # Scans of which there are no re-estimates count as exact.
        self._standard = self.scale.double()
        change = train.shared.get("change", torch.zeros_like(self._standard))
        self._support = (1 - change * self._standard.square()).clamp(min=0)
        return super().solve(design, train)

    def fit(self, point: int) -> None:
        super().fit(point)
        power = self.hyperparameters.powers[point % len(self.hyperparameters.powers)]
        self.scale.copy_(self._standard * self._support**power)
