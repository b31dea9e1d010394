"""Ridge regression on Fisher-z FC that trusts an edge as far as re-estimation supports it.

The paper's idea in its simplest form: an edge whose within-scan re-estimates change as much (D)
as subjects differ (V) says nothing about subjects. Each standardised edge is multiplied by
``max(0, 1 - D / V) ** power``; D and V are of the fold's training subjects.
"""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from brio_core.cohort import TrainView
from brio_core.layers.linear import Path, balanced_weights, ridge_path
from brio_core.linear import StandardisedEdges, upper_triangle
from brio_core.methods.base import Features, Settings
from brio_core.sources import Sources


@dataclass(frozen=True)
class LinearReestimationSettings(Settings):
    """``penalties`` (alpha) and ``powers``, largest first; ``reestimates`` of every scan.

    The path goes through the penalties and within each through the powers. For one penalty, a
    larger power penalises no edge less, so ties still go to the stronger penalty.
    """

    penalties: tuple[float, ...]
    powers: tuple[float, ...]
    reestimates: int


class LinearReestimation(StandardisedEdges):
    """Sites and classes weigh the same; labels are -1 and 1."""

    name = "linear-reestimation"
    Settings = LinearReestimationSettings
    needs = ("fc",)
    representation_is_shared = False

    @property
    def path_length(self) -> int:
        return len(self.settings.penalties) * len(self.settings.powers)

    @classmethod
    def share(cls, sources: Sources, settings: LinearReestimationSettings) -> list[Features]:
        total, count = None, 0
        for chunk in sources.reestimates(settings.reestimates, 0, 1.0, graphs=32):
            edges = upper_triangle(sources.inputs(chunk.rows)["fc"])
            change = (upper_triangle(chunk.fc) - edges[:, None]).square().mean(1)
            if total is None:
                shape = (len(sources.rows), edges.shape[-1])
                total = torch.zeros(shape, dtype=torch.float64, device=edges.device)
                count = total.new_zeros(len(sources.rows), 1)
            total[chunk.folds] += change.double().sum(0)
            count[chunk.folds] += len(chunk.rows)
        return [{"change": change} for change in total / count]

    def solve(self, design: Tensor, train: TrainView) -> Path:
        # Scans of which there are no re-estimates count as exact.
        change = train.shared.get("change", torch.zeros_like(design[0]))
        self._standard = self.scale.double()
        self._support = (1 - change * self._standard.square()).clamp(min=0)
        target = 2.0 * train.label.double() - 1
        sample = balanced_weights(train.site, train.label)
        paths = {
            power: ridge_path(
                design * self._support**power, target, sample, self.settings.penalties
            )
            for power in self.settings.powers
        }
        grid = [
            (paths[power], point)
            for point, power in product(range(len(self.settings.penalties)), self.settings.powers)
        ]
        return (
            torch.stack([weights[point] for (weights, _), point in grid]),
            torch.stack([biases[point] for (_, biases), point in grid]),
        )

    def fit(self, point: int) -> None:
        super().fit(point)
        power = self.settings.powers[point % len(self.settings.powers)]
        self.scale.copy_(self._standard * self._support**power)
