"""Ridge regression on Fisher-z FC that trusts an edge as far as re-estimation supports it.

The paper's idea in its simplest form: an edge whose within-scan re-estimates change as much (D)
as subjects differ (V) says nothing about subjects. Each standardised edge is multiplied by
``max(0, 1 - D / V) ** power``; D and V are of the fold's training subjects.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from brio_core.connectivity.graphs import upper_triangle
from brio_core.connectivity.kinds import connectivity_of
from brio_core.methods.interface import Features
from brio_core.methods.linear.exact import Path
from brio_core.methods.linear.ridge import Ridge, RidgeHyperparameters
from brio_core.methods.train_view import TrainView
from brio_core.methods.training_scans import TrainingScans


@dataclass(frozen=True)
class LinearReestimationHyperparameters(RidgeHyperparameters):
    """``powers``, largest first; ``reestimates`` of every scan.

    The path goes through the penalties and within each through the powers. For one penalty, a
    larger power penalises no edge less, so ties still go to the stronger penalty.
    """

    powers: tuple[float, ...]
    reestimates: int


class LinearReestimation(Ridge):
    """Ridge regression on edges that are scaled by their support."""

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
