"""What the linear rows have in common: one weight per feature, fitted exactly."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from brio_core.cohort import TrainView
from brio_core.layers.linear import Path, logistic_path
from brio_core.methods.base import Features, PathMethod, Settings

# A spread below this is rounding: the feature is constant and gets no weight.
CONSTANT = 1e-12


@dataclass(frozen=True)
class LogisticSettings(Settings):
    """``penalties``: inverse strengths C of the l2 penalty, strongest penalty first."""

    penalties: tuple[float, ...]


class LinearMethod(PathMethod):
    """l2 logistic regression on the representation that a subclass gives."""

    Settings = LogisticSettings

    def __init__(self, settings: Settings, n_rois: int, n_sites: int, n_features: int) -> None:
        super().__init__(settings, n_rois, n_sites)
        self.weight = nn.Parameter(torch.zeros(n_features), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(()), requires_grad=False)

    @property
    def path_length(self) -> int:
        return len(self.settings.penalties)

    def design(self, features: Features) -> Tensor:
        """Fit what the representation needs on training subjects; theirs, in float64 (N, D)."""
        raise NotImplementedError

    def solve(self, design: Tensor, train: TrainView) -> Path:
        """Weights and intercepts of all points."""
        return logistic_path(design, train.label, self.settings.penalties)

    def prepare(self, train: TrainView) -> None:
        features = train.features
        if features is None:
            features = self.features({need: getattr(train, need) for need in self.needs})
        self._weights, self._biases = self.solve(self.design(features), train)

    def fit(self, point: int) -> None:
        self.weight.copy_(self._weights[point])
        self.bias.copy_(self._biases[point])

    def classify(self, represented: Tensor) -> Tensor:
        return represented @ self.weight + self.bias


class StandardisedEdges(LinearMethod):
    """Fisher-z FC of every pair of ROIs, standardised on training subjects."""

    def __init__(self, settings: Settings, n_rois: int, n_sites: int) -> None:
        n_edges = n_rois * (n_rois - 1) // 2
        super().__init__(settings, n_rois, n_sites, n_edges)
        self.register_buffer("mean", torch.zeros(n_edges))
        self.register_buffer("scale", torch.zeros(n_edges))

    def features(self, inputs: Features) -> Features:
        return {"edges": upper_triangle(inputs["fc"])}

    def design(self, features: Features) -> Tensor:
        # In place: a copy of the design costs as much as a tenth of the fit.
        edges = features["edges"].to(torch.float64, copy=True)
        mean, scale = mean_and_scale(edges)
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        return edges.sub_(mean).mul_(scale)

    def represent(self, features: Features) -> Tensor:
        return (features["edges"] - self.mean) * self.scale


def mean_and_scale(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mean of every column and one over its deviation, which is zero for a constant column."""
    mean, deviation = values.mean(0), values.std(0, correction=0)
    return mean, torch.where(deviation > CONSTANT, 1 / deviation.clamp(min=CONSTANT), 0.0)


def upper_triangle(matrices: Tensor) -> Tensor:
    """The entries (..., P (P - 1) / 2) above the diagonal."""
    n_rois = matrices.shape[-1]
    row, column = torch.triu_indices(n_rois, n_rois, 1, device=matrices.device)
    return matrices[..., row, column]
