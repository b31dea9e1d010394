"""Ridge regression in which every site and class weighs the same."""

from dataclasses import dataclass

import torch
from torch import Tensor

from brio_core.methods.hyperparameters import Hyperparameters
from brio_core.methods.linear import krylov
from brio_core.methods.linear.exact import Path, balanced_weights, ridge_left_out
from brio_core.methods.linear.method import StandardisedEdges, check_sites
from brio_core.methods.train_view import TrainView


@dataclass(frozen=True)
class RidgeHyperparameters(Hyperparameters):
    """``penalties``: strengths alpha, largest first; the others as :func:`check_sites` says."""

    penalties: tuple[float, ...]
    selection: str
    centre: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sites(self)


class Ridge(StandardisedEdges):
    """Standardised edges; labels are -1 and 1."""

    Hyperparameters = RidgeHyperparameters

    def scales(self) -> Tensor:
        """Factors (S, D) of the standardised edges; all of them are tried with every penalty."""
        return torch.ones_like(self.scale, dtype=torch.float64)[None]

    def solve(self, design: Tensor, train: TrainView) -> Path:
        target, sample = 2 * train.label - 1, balanced_weights(train.site, train.label)
        scales, penalties = self.scales(), self.hyperparameters.penalties
        if design.dtype == torch.float64:
            inner = train.inner_folds
            offsets = None if inner is None else self.inner_offsets(train)
            weights, biases, left_out = ridge_left_out(
                design, target, sample, scales, penalties, inner, offsets
            )
            if left_out is not None:
                self._left_out = left_out.transpose(0, 1).flatten(0, 1)
        else:
            weights, biases = krylov.ridge_grid(design, target, sample, scales, penalties)
        # Scales are the inner loop of the path.
        return weights.transpose(0, 1).flatten(0, 1), biases.T.flatten()

    def scaled_weights(self, weights: Tensor) -> Tensor:
        return weights * self.scales().repeat(len(self.hyperparameters.penalties), 1)

    def left_out(self, design: Tensor, train: TrainView) -> Tensor:
        # An exact fit has found them on its way.
        exact = design.dtype == torch.float64
        return self._left_out if exact else super().left_out(design, train)
