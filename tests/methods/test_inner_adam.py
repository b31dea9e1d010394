"""An Adam step within a step."""

import torch
from torch import nn

from brio_core.methods.xg_gnn.inner_adam import adam_step, add_moments


def test_steps_equal_those_of_the_optimiser():
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    add_moments(module)
    buffers = dict(module.named_buffers())
    weights = {name: value.detach().clone() for name, value in module.named_parameters()}
    optimiser = torch.optim.Adam(module.parameters(), lr=0.01, weight_decay=0.1)
    for step in range(3):
        gradients = {name: torch.randn_like(value) for name, value in weights.items()}
        for name, parameter in module.named_parameters():
            parameter.grad = gradients[name]
        optimiser.step()
        weights = adam_step(weights, gradients, buffers, 0.01, 0.1)
        torch.testing.assert_close(weights, dict(module.named_parameters()))
        assert buffers["inner_adam_steps"] == step + 1


def test_without_a_rate_weights_stay_and_moments_move():
    module = nn.Linear(3, 2)
    add_moments(module)
    buffers, weights = dict(module.named_buffers()), dict(module.named_parameters())
    moved = adam_step(weights, weights, buffers, 0.0, 0.0)
    assert all(torch.equal(moved[name], weights[name]) for name in weights)
    assert (buffers["inner_adam_mean"] != 0).any()
