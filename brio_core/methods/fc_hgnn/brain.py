"""Stage 1 of FC-HGNN: each subject's own graph, hemisphere by hemisphere, to one vector."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import propagate
from brio_core.methods.fc_hgnn.node_pooling import LocalGlobalPooling
from brio_core.system.randomness import dropout

LEFT, RIGHT, MIDLINE = range(3)
# Random streams that the encoder uses, counted from 0.
STREAMS = 4


def hemispheres(rois: Rois) -> Tensor:
    """The group of every ROI, (P,).

    Labels L and R say it, and all others are midline; without labels the sign of the centroid
    does, and without centroids the first half of the ROIs is left and the second right.
    """
    sides = {"L": LEFT, "R": RIGHT}
    if any(label in sides for label in rois.hemispheres):
        return torch.tensor([sides.get(label, MIDLINE) for label in rois.hemispheres])
    x = torch.as_tensor(rois.centroids)[:, 0]
    is_left = x < 0 if torch.isfinite(x).all() else torch.arange(len(rois)) < len(rois) // 2
    return torch.where(is_left, LEFT, RIGHT)


class HemisphereConvolution(nn.Module):
    """A GCN layer with weights of its own for either hemisphere, on the edges inside of it.

    Midline ROIs have edges among themselves; there, what both weights give is averaged.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.left = glorot_linear(before, after)
        self.right = glorot_linear(before, after)

    def forward(self, parts: list[Tensor], weights: Tensor) -> Tensor:
        """Left, right and midline nodes (B, n, d), any of them none, to all nodes (B, P, e)."""
        sides = [(side.weight, side.bias) for side in (self.left, self.right)]
        sides.append(tuple((one + other) / 2 for one, other in zip(*sides)))
        heard, start = [], 0
        for part, (weight, bias) in zip(parts, sides):
            stop = start + part.shape[-2]
            if start == stop:
                continue
            # Flat, because a batch of slices would repeat the weight for every subject.
            projected = (part.flatten(0, 1) @ weight.T).unflatten(0, part.shape[:2])
            heard.append(propagate(weights[:, start:stop, start:stop], projected) + bias)
            start = stop
        return torch.cat(heard, -2)


class BrainEncoder(nn.Module):
    """Convolutions within, then across hemispheres; local-global pooling; flattened."""

    def __init__(
        self, n_rois: int, hidden: int, units: int, kept: float, clusters: float, rate: float
    ) -> None:
        super().__init__()
        self.rate = rate
        # ROIs come ordered as left, right, midline; the method knows how many there are.
        self.sizes = (n_rois, 0, 0)
        self.first = HemisphereConvolution(n_rois, hidden)
        self.second = HemisphereConvolution(hidden, units)
        self.across = glorot_linear(units, units)
        n_kept = math.ceil(kept * n_rois - 1e-9)
        n_clusters = math.ceil(clusters * n_rois - 1e-9)
        self.pooling = LocalGlobalPooling(units, n_kept, n_clusters)
        self.width = n_kept * units

    def forward(self, fc: Tensor, edges: Tensor, key: Tensor | None = None) -> Tensor:
        """FC rows and edges (B, P, P) to (B, width); no dropout without a key."""
        weights, adjacency = fc.abs() * edges, edges.to(fc.dtype)
        hidden = self.within(fc, weights, key)
        across = propagate(weights, hidden @ self.across.weight.T) + self.across.bias
        hidden = functional.leaky_relu(across)
        return self.pooling(hidden, adjacency).flatten(-2)

    def within(self, nodes: Tensor, weights: Tensor, key: Tensor | None = None) -> Tensor:
        """Both convolutions inside hemispheres, (B, P, P) to (B, P, units)."""
        parts = list(nodes.split(self.sizes, -2))
        if key is not None:
            parts = [
                dropout(part, self.rate, key, group) if part.numel() else part
                for group, part in enumerate(parts)
            ]
        hidden = functional.leaky_relu(self.first(parts, weights))
        if key is not None:
            hidden = dropout(hidden, self.rate, key, MIDLINE + 1)
        return functional.leaky_relu(self.second(list(hidden.split(self.sizes, -2)), weights))


def glorot_linear(before: int, after: int) -> nn.Linear:
    """A Linear with the initial weights of a GCN: Glorot's, and no bias."""
    linear = nn.Linear(before, after)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
