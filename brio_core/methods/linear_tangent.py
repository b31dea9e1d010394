"""l2 logistic regression in the tangent space of covariance matrices; Dadi et al. 2019.

Covariances of z-scored series are shrunk by Ledoit and Wolf's rule, whitened with the geometric
mean of the training subjects' and mapped by the matrix logarithm. The vectors are nilearn's
``ConnectivityMeasure(kind="tangent", vectorize=True)``, centred on training subjects.
"""

import torch
from torch import Tensor

from brio_core.layers.tangent import ledoit_wolf, log_vectors, tangent_space
from brio_core.linear import LinearMethod, LogisticSettings
from brio_core.methods.base import Features


class LinearTangent(LinearMethod):
    """Tangent vectors at the geometric mean of the training subjects, one weight per entry."""

    name = "linear-tangent"
    needs = ("bold", "frames")

    def __init__(self, settings: LogisticSettings, n_rois: int, n_sites: int) -> None:
        n_features = n_rois * (n_rois + 1) // 2
        super().__init__(settings, n_rois, n_sites, n_features)
        self.register_buffer("whitening", torch.eye(n_rois, dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(n_features))

    def features(self, inputs: Features) -> Features:
        return {"covariance": ledoit_wolf(inputs["bold"], inputs["frames"])}

    def design(self, features: Features) -> Tensor:
        whitening, vectors = tangent_space(features["covariance"])
        self.whitening.copy_(whitening)
        mean = vectors.mean(0)
        self.mean.copy_(mean)
        return vectors - mean

    def represent(self, features: Features) -> Tensor:
        vectors = log_vectors(features["covariance"], self.whitening)
        return vectors.to(self.mean.dtype) - self.mean
