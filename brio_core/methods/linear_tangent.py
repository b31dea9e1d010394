"""l2 logistic regression in the tangent space of covariance matrices; Dadi et al. 2019.

Covariances of z-scored series are shrunk by Ledoit and Wolf's rule, whitened with the geometric
mean of the training subjects' and mapped by the matrix logarithm. The vectors are nilearn's
``ConnectivityMeasure(kind="tangent", vectorize=True)``, centred on training subjects.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from brio_core.connectivity.tangent import ledoit_wolf, log_vectors, tangent_space
from brio_core.methods.interface import Features
from brio_core.methods.linear.method import LinearMethod, LogisticHyperparameters, TrainFeatures
from brio_core.system.blocks import column_means, replace_columns


class LinearTangent(LinearMethod):
    """Tangent vectors at the geometric mean of the training subjects, one weight per entry."""

    name = "linear-tangent"
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
