"""l2 logistic regression on Fisher-z FC: what every method has to be compared with.

Edges are standardised with training means and deviations. An l2 solution lies in the span of the
training subjects, so the fit is done in their N-dimensional rotation and is exact.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brio_core.cohort import TrainView
from brio_core.layers.linear import logistic_path_point
from brio_core.methods.base import Features, PathMethod, Settings


@dataclass(frozen=True)
class LinearCorrelationSettings(Settings):
    """``penalties``: inverse strengths C of the l2 penalty, strongest penalty first."""

    penalties: tuple[float, ...]


class LinearCorrelation(PathMethod):
    """Standardised upper-triangle edges and one weight per edge."""

    name = "linear-correlation"
    Settings = LinearCorrelationSettings

    def __init__(self, settings: LinearCorrelationSettings, n_rois: int, n_sites: int) -> None:
        super().__init__(settings, n_rois, n_sites)
        edges = n_rois * (n_rois - 1) // 2
        self.register_buffer("mean", torch.zeros(edges))
        self.register_buffer("scale", torch.zeros(edges))
        self.register_buffer("weight", torch.zeros(edges))
        self.register_buffer("bias", torch.zeros(()))

    @property
    def path_length(self) -> int:
        return len(self.settings.penalties)

    def features(self, inputs: Features) -> Features:
        fc = inputs["fc"]
        row, column = torch.triu_indices(self.n_rois, self.n_rois, 1, device=fc.device)
        return {"edges": fc[..., row, column]}

    def prepare(self, train: TrainView) -> None:
        edges = self.features({"fc": train.fc})["edges"].double()
        mean, deviation = edges.mean(0), edges.std(0, correction=0)
        # A constant edge carries nothing and gets weight zero.
        scale = torch.where(deviation > 1e-12, 1 / deviation.clamp(min=1e-12), 0.0)
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        self._edges = (edges - mean) * scale
        left, singular, _ = torch.linalg.svd(self._edges @ self._edges.T)
        keep = singular > singular.max() * 1e-12
        self._rotation = left[:, keep]
        self._rotated = self._rotation * singular[keep].sqrt()
        self._singular = singular[keep].sqrt()
        self._label = train.label.double()
        self._start = torch.zeros(self._rotated.shape[1] + 1, dtype=torch.float64).to(edges.device)

    def fit(self, point: int) -> None:
        self._start = logistic_path_point(
            self._rotated, self._label, self.settings.penalties[point], self._start
        )
        in_span = self._rotation @ (self._start[:-1] / self._singular)
        self.weight.copy_(self._edges.T @ in_span)
        self.bias.copy_(self._start[-1])

    def represent(self, features: Features) -> Tensor:
        return (features["edges"] - self.mean) * self.scale

    def logits(self, features: Features) -> Tensor:
        return self.represent(features) @ self.weight + self.bias
