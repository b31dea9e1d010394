"""Stage 1 of FC-HGNN: each subject's own graph, by hemisphere, to one vector."""

import math
from collections.abc import Iterator
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import normalised_adjacency
from brio_core.methods.fc_hgnn.layers import Laplacian, LocalGlobalPooling
from brio_core.methods.interface import Features
from brio_core.methods.layers.perceptrons import row_linear
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
    known = sides_are_known(rois)
    is_left = (
        torch.as_tensor(rois.centroids)[:, 0] < 0
        if known
        else torch.arange(len(rois)) < len(rois) // 2
    )
    return torch.where(is_left, LEFT, RIGHT)


def sides_are_known(rois: Rois) -> bool:
    """Whether labels or centroids tell the hemisphere of the ROIs."""
    return bool({"L", "R"} & set(rois.hemispheres) or np.isfinite(rois.centroids[:, 0]).all())


class HemisphereConvolution(nn.Module):
    """A GCN layer with weights of its own for either hemisphere, on the edges inside of it.

    Midline ROIs have edges among themselves; there, what both weights give is averaged.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.left = glorot_linear(before, after)
        self.right = glorot_linear(before, after)

    def sides(self) -> list[tuple[Tensor, Tensor]]:
        """Weight and bias of left, right and midline nodes."""
        sides = [(side.weight, side.bias) for side in (self.left, self.right)]
        return [*sides, tuple((one + other) / 2 for one, other in zip(*sides))]

    def forward(self, parts: dict[int, Tensor], operators: dict[int, Tensor]) -> Tensor:
        """Left, right and midline nodes (B, n, d), any of them missing, to all nodes (B, P, e).

        With the leaky ReLU that follows.
        """
        sides, heard = self.sides(), []
        for group, part in parts.items():
            weight, bias = sides[group]
            heard.append(leaky_relu(operators[group] @ row_linear(part, weight) + bias))
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

    def graphs(self, fc: Tensor, edges: Tensor) -> Features:
        """All that the layers read of FC and its edges (B, P, P), which training does not change.

        Nodes and operators of the hemispheres that there are, the operator of the whole graph, and
        its Laplacian.
        """
        adjacency = edges.to(fc.dtype)
        weights, laplacian = fc.abs() * adjacency, Laplacian.of(adjacency)
        found = {"across": normalised_adjacency(weights), **laplacian._asdict()}
        for group, rows in self._groups():
            found[f"nodes{group}"] = fc[:, rows]
            found[f"within{group}"] = normalised_adjacency(weights[:, rows, rows])
        return found

    def _groups(self) -> Iterator[tuple[int, slice]]:
        """Numbers and rows of the hemispheres that have ROIs."""
        for group, (stop, size) in enumerate(zip(accumulate(self.sizes), self.sizes)):
            if size:
                yield group, slice(stop - size, stop)

    def forward(self, graphs: Features, key: Tensor | None = None) -> Tensor:
        """:meth:`graphs` to (B, width); no dropout without a key."""
        hidden = row_linear(self.within(graphs, key), self.across.weight)
        hidden = leaky_relu(graphs["across"] @ hidden + self.across.bias)
        laplacian = Laplacian(*(graphs[name] for name in Laplacian._fields))
        return self.pooling(hidden, laplacian).flatten(-2)

    def within(self, graphs: Features, key: Tensor | None = None) -> Tensor:
        """Both convolutions inside hemispheres, to (B, P, units)."""
        operators = {group: graphs[f"within{group}"] for group, _ in self._groups()}
        parts = {
            group: dropout(graphs[f"nodes{group}"], self.rate, key, group) for group in operators
        }
        hidden = dropout(self.first(parts, operators), self.rate, key, MIDLINE + 1)
        split = hidden.split([part.shape[-2] for part in parts.values()], -2)
        return self.second(dict(zip(parts, split)), operators)


def glorot_linear(before: int, after: int) -> nn.Linear:
    """A Linear with the initial weights of a GCN: Glorot's, and no bias."""
    linear = nn.Linear(before, after)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
