"""alpha-entmax: a softmax that gives exact zeros."""

import torch
from torch import Tensor

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
