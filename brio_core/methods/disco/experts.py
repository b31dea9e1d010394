"""Several networks of one shape side by side: their parameters have a leading axis of experts.

Nodes are (K, B, P, d). What all experts read alike has no expert axis, (B, P, d).
"""

import math

import torch
from torch import Tensor, nn

from brio_core.methods.disco.graphs import ExpertGraphs
from brio_core.methods.layers.norms import norm_relu, remember
from brio_core.methods.layers.perceptrons import row_linear

NEWTON_STEPS = 24


def entmax(scores: Tensor, alpha: float) -> Tensor:
    """``[(alpha - 1) s - t]_+ ^ (1 / (alpha - 1))`` along the last axis, t such that it sums to 1.

    alpha = 1 is softmax, alpha = 2 sparsemax; values between are meant (1 <= alpha <= 2).
    """
    return scores.softmax(-1) if alpha == 1 else _Entmax.apply(scores, alpha)


class _Entmax(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(scores, alpha):
        power = 1 / (alpha - 1)
        scaled = (scores - scores.amax(-1, keepdim=True)) * (alpha - 1)
        # The sum is convex and falls in t, and at -1 it is at least 1: Newton's steps from
        # there come closer from one side and cannot overshoot.
        threshold = torch.full_like(scaled[..., :1], -1.0)
        for _ in range(NEWTON_STEPS):
            room = (scaled - threshold).clamp_min(0)
            excess = room.pow(power).sum(-1, keepdim=True) - 1
            slope = power * (room.pow(power - 1) * (room > 0)).sum(-1, keepdim=True)
            threshold = threshold + excess / slope
        weights = (scaled - threshold).clamp_min(0).pow(power)
        return weights / weights.sum(-1, keepdim=True)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output)
        ctx.alpha = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        (weights,) = ctx.saved_tensors
        slope = torch.where(weights > 0, weights.clamp_min(1e-30).pow(2 - ctx.alpha), 0)
        through = grad * slope
        shared = through.sum(-1, keepdim=True) / slope.sum(-1, keepdim=True)
        return through - slope * shared, None


class ExpertLinear(nn.Module):
    """One Linear per expert, with the initial weights that ``nn.Linear`` would have."""

    def __init__(self, experts: int, before: int, after: int, bias: bool = True) -> None:
        super().__init__()
        bound = 1 / math.sqrt(before)
        self.weight = nn.Parameter(torch.empty(experts, before, after).uniform_(-bound, bound))
        self.bias = None
        if bias:
            self.bias = nn.Parameter(torch.empty(experts, after).uniform_(-bound, bound))

    def project(self, values: Tensor) -> Tensor:
        """The products alone, without bias: (K, ..., d) of each expert's own values."""
        return (values.flatten(1, -2) @ self.weight).unflatten(1, values.shape[1:-1])

    def forward(self, values: Tensor) -> Tensor:
        """Each expert's own values (K, ..., d) to (K, ..., e)."""
        products = self.project(values)
        if self.bias is None:
            return products
        return products + self.bias.view(len(self.bias), *[1] * (values.ndim - 2), -1)


def side_by_side(values: Tensor, weight: Tensor) -> Tensor:
    """The same values (..., d) under every expert's weight (K, d, e), as (..., K, e)."""
    experts, _, after = weight.shape
    # One wide product: repeating the values would cost their size once per expert.
    wide = row_linear(values, weight.mT.flatten(0, 1))
    return wide.unflatten(-1, (experts, after))


class ExpertNorm(nn.Module):
    """BatchNorm per expert and channel over all graphs and nodes, (K, B, P, d)."""

    eps = 1e-5
    momentum = 0.1

    def __init__(self, experts: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(experts, width))
        self.bias = nn.Parameter(torch.zeros(experts, width))
        self.register_buffer("running_mean", torch.zeros(experts, width))
        self.register_buffer("running_var", torch.ones(experts, width))

    def forward(self, values: Tensor) -> Tensor:
        mean, variance = self.running_mean, self.running_var
        if self.training:
            variance, mean = torch.var_mean(values, (1, 2), correction=0)
            remember(self, mean, variance, values.shape[1] * values.shape[2])
        scale = self.weight * (variance + self.eps).rsqrt()
        shift = self.bias - mean * scale
        return torch.addcmul(shift[:, None, None], values, scale[:, None, None])


class ExpertGin(nn.Module):
    """Per expert: ``MLP((1 + eps) x_i + sum_j A_ij x_j)`` - BatchNorm - ReLU - dropout, repeated.

    MLP = Linear - ReLU - Linear; the second has no bias, for a BatchNorm follows.
    """

    def __init__(self, experts: int, before: int, hidden: int, layers: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.first = nn.ModuleList(
            ExpertLinear(experts, hidden if layer else before, hidden) for layer in range(layers)
        )
        self.second = nn.ModuleList(
            ExpertLinear(experts, hidden, hidden, bias=False) for _ in range(layers)
        )
        self.norms = nn.ModuleList(ExpertNorm(experts, hidden) for _ in range(layers))
        self.epsilon = nn.Parameter(torch.zeros(layers, experts))

    def forward(
        self, nodes: Tensor, graphs: ExpertGraphs, key: Tensor | None, stream: int
    ) -> Tensor:
        """Nodes (B, P, d) that all experts share, on graphs of their own, to (K, B, P, e).

        The features of nodes that are not kept count as zero. Dropout takes a key and one stream
        per layer from ``stream`` on.
        """
        hidden = nodes
        for layer, (first, second, norm) in enumerate(zip(self.first, self.second, self.norms)):
            # The first Linear commutes with the sum over neighbours.
            beside = layer == 0
            hidden = side_by_side(hidden, first.weight) if beside else first.project(hidden)
            heard = graphs.hear(hidden, 1 + self.epsilon[layer], first.bias, beside)
            hidden = norm_relu(second(heard), norm, self.rate, key, stream + layer)
        return hidden


class SlowLinear(nn.Linear):
    """A Linear that learns at a fraction of the learning rate under any Adam.

    Adam's steps do not depend on the size of gradients, so what is stored is the weight divided
    by the fraction: a step of the stored number is a fraction of a step of the weight.
    """

    def __init__(self, before: int, after: int, fraction: float, bias: bool = True) -> None:
        super().__init__(before, after, bias)
        self.fraction = fraction
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.div_(fraction)

    def forward(self, values: Tensor) -> Tensor:
        return self.fraction * super().forward(values)
