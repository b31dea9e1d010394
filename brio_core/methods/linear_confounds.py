"""l2 logistic regression on age, sex and head motion: the level that a scan must beat."""

import torch
from torch import Tensor

from brio_core.methods.interface import Features
from brio_core.methods.linear.method import (
    LinearMethod,
    LogisticHyperparameters,
    TrainFeatures,
    mean_and_scale,
)
from brio_core.system.threads import one_thread

N_COVARIATES = 3


class LinearConfounds(LinearMethod):
    """Covariates standardised on training subjects, each with an indicator of missing values.

    A missing value stands at the training mean, which is zero. Indicators stay 0 or 1: dividing
    one that is rarely set by its deviation would make few subjects outweigh all others.
    """

    name = "linear-confounds"
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
