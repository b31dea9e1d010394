"""An Adam step within a step: its moments are buffers, so they stay with the fold's state."""

import torch
from torch import Tensor, nn

PREFIX = "inner_adam_"
_MEAN, _SQUARE, _STEPS = PREFIX + "mean", PREFIX + "square", PREFIX + "steps"
_BETAS, _EPS = (0.9, 0.999), 1e-8


def add_moments(module: nn.Module) -> None:
    """Give a module the moments of all its parameters, as one vector each."""
    count = sum(parameter.numel() for parameter in module.parameters())
    module.register_buffer(_MEAN, torch.zeros(count))
    module.register_buffer(_SQUARE, torch.zeros(count))
    module.register_buffer(_STEPS, torch.zeros(()))


def adam_step(
    weights: dict[str, Tensor],
    gradients: dict[str, Tensor],
    buffers: dict[str, Tensor],
    rate: float,
    decay: float,
) -> dict[str, Tensor]:
    """Weights after one step of Adam (weight decay as part of the gradient); moments change."""
    flat = torch.cat([weight.flatten() for weight in weights.values()])
    slope = torch.cat([gradients[name].flatten() for name in weights]) + decay * flat
    mean, square, steps = buffers[_MEAN], buffers[_SQUARE], buffers[_STEPS]
    mean.mul_(_BETAS[0]).add_((1 - _BETAS[0]) * slope)
    square.mul_(_BETAS[1]).add_((1 - _BETAS[1]) * slope.square())
    steps.add_(1)
    first, second = mean / (1 - _BETAS[0] ** steps), square / (1 - _BETAS[1] ** steps)
    moved = flat - rate * first / (second.sqrt() + _EPS)
    parts = moved.split([weight.numel() for weight in weights.values()])
    # Copies begin at addresses that fast matrix products like.
    return {name: part.view_as(weights[name]).clone() for name, part in zip(weights, parts)}
