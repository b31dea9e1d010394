"""Adam and AdamW over weights that are stacked by fold.

The steps are torch's own functions. Its classes would import a compiler first, which nobody uses
here and which takes longer than many a small run.
"""

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.stack import State

BETAS, EPSILON = (0.9, 0.999), 1e-8


class Adam:
    """Weights, their moments and the learning rate; all change in place, as CUDA graphs need."""

    def __init__(self, weights: State, hyperparameters: GradientHyperparameters) -> None:
        self.weights = weights
        self.moments: dict[str, State] = {
            name: {
                "steps": torch.zeros((), device=value.device),
                "mean": torch.zeros_like(value),
                "square": torch.zeros_like(value),
            }
            for name, value in weights.items()
        }
        self.rate: float | Tensor = hyperparameters.learning_rate
        if hyperparameters.schedule == "cosine":
            # A tensor, so that a captured step can read the rate of its own number.
            device = next(iter(weights.values())).device
            self.rate = torch.tensor(self.rate, device=device)
        self._decay = hyperparameters.weight_decay
        self._function = {"adam": adam, "adamw": adamw}[hyperparameters.optimiser]

    def step(self, gradients: State) -> None:
        """Move the weights that have a gradient."""
        names = [name for name in self.weights if name in gradients]
        moments = [self.moments[name] for name in names]
        on_gpu = any(self.weights[name].is_cuda for name in names)
        self._function(
            [self.weights[name] for name in names],
            # The fused kernel takes contiguous gradients only.
            [gradients[name].contiguous() for name in names],
            [moment["mean"] for moment in moments],
            [moment["square"] for moment in moments],
            [],
            [moment["steps"] for moment in moments],
            foreach=False,
            capturable=on_gpu,
            fused=on_gpu,
            amsgrad=False,
            beta1=BETAS[0],
            beta2=BETAS[1],
            lr=self.rate,
            weight_decay=self._decay,
            eps=EPSILON,
            maximize=False,
        )

    def forget(self) -> None:
        """Begin anew with the weights as they are."""
        for moment in self.moments.values():
            for value in moment.values():
                value.zero_()

    def keep(self, weights: State, folds: Tensor) -> None:
        """Go on with some of the folds; the number of steps is one for all."""
        self.weights = weights
        for moment in self.moments.values():
            moment.update({name: value[folds] for name, value in moment.items() if value.dim()})

    def load(self, moments: dict[str, State]) -> None:
        for name, moment in self.moments.items():
            for key, value in moment.items():
                value.copy_(moments[name][key])
