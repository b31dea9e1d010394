"""Spline convolutions (Fey et al., 2018) of degree 1 on dense graphs.

Every edge has coordinates in [0, 1]. The matrix that a neighbour's features go through is
interpolated between learnt matrices at equally spaced control points.
"""

import torch
from torch import Tensor, nn


def hat_basis(coordinates: Tensor, points: int) -> Tensor:
    """``B_k(e) = max(0, 1 - |(m - 1) e - k|)`` for m control points, (...) to (..., m)."""
    place = torch.arange(points, dtype=coordinates.dtype, device=coordinates.device)
    return (1 - ((points - 1) * coordinates[..., None] - place).abs()).clamp_min(0)


def product_basis(coordinates: Tensor, points: int) -> Tensor:
    """Products of the bases of D coordinates, (..., D) to (..., m^D)."""
    basis, *others = hat_basis(coordinates, points).unbind(-2)
    for other in others:
        basis = (basis[..., :, None] * other[..., None, :]).flatten(-2)
    return basis


def spline_operator(basis: Tensor, mask: Tensor) -> Tensor:
    """``B_k(e_uv) / deg_u`` on the edges of ``mask`` (..., P, P), as (..., P, m, P).

    ``basis`` (..., P, P, m) has the values of the m basis functions.
    """
    mean = mask.to(basis.dtype) / mask.sum(-1, keepdim=True).clamp_min(1)
    return (mean[..., None] * basis).mT.contiguous()


class SplineConvolution(nn.Module):
    """``mean_v sum_k B_k(e_uv) Theta_k h_v + Theta_root h_u + b``."""

    def __init__(self, before: int, after: int, points: int) -> None:
        super().__init__()
        self.points = points
        # The m matrices side by side.
        self.thetas = nn.Linear(points * before, after, bias=False)
        self.root = nn.Linear(before, after)

    def forward(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """Nodes (B, P, d) and what :func:`spline_operator` made of the graphs."""
        # One product for all control points, in an order that needs no copy afterwards.
        heard = operator.flatten(-3, -2) @ hidden
        heard = heard.unflatten(-2, (-1, self.points)).flatten(-2)
        return self.thetas(heard) + self.root(hidden)
