"""GIN: Xu et al., How Powerful are Graph Neural Networks?, 2019.

Every layer's nodes, the input included, are pooled, and one linear layer reads all of them: the
same function as the authors' sum of one linear score per layer, with dropout on its input. The
authors choose an epoch by the accuracy of the folds that are reported; here validation does.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.methods.layers.convolutions import DenseGin
from brio_core.methods.layers.norms import NodeNorm, norm_relu
from brio_core.system.randomness import dropout


@dataclass(frozen=True)
class GinHyperparameters(GradientHyperparameters):
    """Sizes of the network; ``readout`` is ``concat`` (all layers and the input) or ``last``."""

    hidden: int
    layers: int
    learn_epsilon: bool
    pooling: Literal["mean", "sum"]
    readout: Literal["concat", "last"]
    dropout: float
    density: float
    edge_weight: Literal["binary", "abs"]


class Gin(GradientMethod):
    """GIN - BatchNorm - ReLU, repeated; pooled layers side by side; dropout; linear head."""

    name = "gin"
    Hyperparameters = GinHyperparameters

    def __init__(self, hyperparameters: GinHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        widths = [n_rois] + [hyperparameters.hidden] * hyperparameters.layers
        self.convolutions = nn.ModuleList(
            DenseGin(before, after, hyperparameters.learn_epsilon)
            for before, after in pairwise(widths)
        )
        self.norms = nn.ModuleList(NodeNorm(width) for width in widths[1:])
        self.head = nn.Linear(sum(widths) if hyperparameters.readout == "concat" else widths[-1], 1)

    def make_features(self, inputs: Features) -> Features:
        """Edges of every subject's graph without self-loops, and FC rows as node features."""
        fc = inputs["fc"]
        mask = subject_graph(fc, self.hyperparameters.density)
        edges = fc.abs() * mask if self.hyperparameters.edge_weight == "abs" else mask.to(fc.dtype)
        return {"adjacency": edges, "nodes": fc}

    def represent(self, features: Features) -> Tensor:
        """The pooled layers, literally what the head reads."""
        hidden = features["nodes"]
        layers = [hidden]
        for convolve, norm in zip(self.convolutions, self.norms):
            hidden = norm_relu(convolve(hidden, features["adjacency"]), norm)
            layers.append(hidden)
        used = layers if self.hyperparameters.readout == "concat" else layers[-1:]
        return torch.cat([pool(layer, self.hyperparameters.pooling) for layer in used], -1)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        represented = dropout(
            self.represent(batch.features), self.hyperparameters.dropout, batch.key
        )
        return binary_cross_entropy(self.head(represented).squeeze(-1), batch.label), {}


def pool(hidden: Tensor, how: str) -> Tensor:
    """Mean or sum over the nodes of every graph, (..., P, d) to (..., d)."""
    return hidden.mean(-2) if how == "mean" else hidden.sum(-2)
