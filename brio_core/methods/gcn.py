"""GCN: Kipf & Welling, Semi-Supervised Classification with Graph Convolutional Networks, 2017.

Graph-level reading: two convolutions over the subject's own graph with FC rows as node features,
mean over nodes, one linear layer. The operator is normalised symmetrically, as in the paper; the
authors' PyTorch code normalises rows instead.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from brio_core.connectivity.graphs import normalised_adjacency, subject_graph
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.methods.layers.convolutions import DenseGcn
from brio_core.methods.layers.norms import MaskedNorm, norm_relu


@dataclass(frozen=True)
class GcnHyperparameters(GradientHyperparameters):
    """Sizes of the network and the rule that makes a graph of FC."""

    hidden: int
    layers: int
    dropout: float
    density: float
    edge_weight: Literal["abs", "binary"]


class Gcn(GradientMethod):
    """GCN - BatchNorm - ReLU - dropout, repeated; mean over nodes; linear head."""

    name = "gcn"
    Hyperparameters = GcnHyperparameters

    def __init__(self, hyperparameters: GcnHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        widths = [n_rois] + [hyperparameters.hidden] * hyperparameters.layers
        self.convolutions = nn.ModuleList(
            DenseGcn(before, after, bias=False) for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(MaskedNorm(width) for width in widths[1:])
        self.head = nn.Linear(hyperparameters.hidden, 1)

    def make_features(self, inputs: Features) -> Features:
        """The normalised operator of every subject's graph, and FC rows as node features."""
        fc = inputs["fc"]
        mask = subject_graph(fc, self.hyperparameters.density)
        # Signed weights must not reach a degree sum, hence magnitudes.
        weights = (
            fc.abs() * mask if self.hyperparameters.edge_weight == "abs" else mask.to(fc.dtype)
        )
        return {"operator": normalised_adjacency(weights), "nodes": fc}

    def represent(self, features: Features) -> Tensor:
        return self._encode(features, None)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.head(self._encode(batch.features, batch.key)).squeeze(-1)
        return binary_cross_entropy(logits, batch.label), {}

    def _encode(
        self, features: Features, key: Tensor | None, present: Tensor | None = None
    ) -> Tensor:
        """Graphs as vectors (B, d); norms count those that are ``present`` (B,), or all."""
        hidden = features["nodes"]
        if present is not None:
            present = present[:, None].expand(hidden.shape[:2]).flatten()
        last = len(self.convolutions) - 1
        for layer, (convolve, norm) in enumerate(zip(self.convolutions, self.norms)):
            hidden = convolve(hidden, features["operator"])
            rate = self.hyperparameters.dropout if layer < last else 0.0
            # One statistic per channel over all nodes of the batch.
            nodes = hidden.flatten(0, 1)
            hidden = norm_relu(nodes, norm, rate, key, layer, present=present).view_as(hidden)
        return hidden.mean(-2)
