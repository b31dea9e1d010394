"""GAT: Velickovic et al., Graph Attention Networks, 2018.

Graph-level reading: two attention layers over the subject's own graph with FC rows as node
features, mean over nodes, one linear layer. Attention is that of the paper (version 1), whose
ranking of senders is the same for all receivers.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.hyperparameters import GradientHyperparameters, check_choice
from brio_core.methods.interface import Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.methods.layers.convolutions import DenseGat
from brio_core.methods.layers.readouts import pool
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout


@dataclass(frozen=True)
class GatHyperparameters(GradientHyperparameters):
    """Sizes of the network; ``hidden`` is the width of all heads together.

    ``edge_weight`` is ``binary``, or ``signed`` to let FC itself enter the attention logits.
    """

    hidden: int
    heads: int
    layers: int
    dropout: float
    attention_dropout: float
    density: float
    edge_weight: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("edge_weight", self.edge_weight, ("binary", "signed"))
        if self.hidden % self.heads:
            raise BrioError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")


class Gat(GradientMethod):
    """Dropout - attention - ELU, repeated; mean over nodes; linear head."""

    name = "gat"
    Hyperparameters = GatHyperparameters

    def __init__(self, hyperparameters: GatHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        widths = [n_rois] + [s.hidden] * s.layers
        self.attentions = nn.ModuleList(
            DenseGat(width, s.heads, s.hidden // s.heads, s.edge_weight == "signed")
            for width, _ in pairwise(widths)
        )
        self.head = nn.Linear(s.hidden, 1)

    def features(self, inputs: Features) -> Features:
        """Whom every ROI hears, itself included, and FC rows as node features."""
        fc = inputs["fc"]
        oneself = torch.eye(fc.shape[-1], dtype=torch.bool, device=fc.device)
        return {"mask": subject_graph(fc, self.hyperparameters.density) | oneself, "nodes": fc}

    def represent(self, features: Features) -> Tensor:
        return self._encode(features, None)

    def logits(self, features: Features) -> Tensor:
        return self.head(self.represent(features)).squeeze(-1)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.head(self._encode(batch.features, batch.key)).squeeze(-1)
        return binary_cross_entropy(logits, batch.label), {}

    def _encode(self, features: Features, key: Tensor | None) -> Tensor:
        s, hidden, fc = self.hyperparameters, features["nodes"], features["nodes"]
        for layer, attend in enumerate(self.attentions):
            if key is not None:
                hidden = dropout(hidden, s.dropout, key, stream=2 * layer)
            heard = attend(
                hidden, features["mask"], fc, s.attention_dropout, key, stream=2 * layer + 1
            )
            hidden = functional.elu(heard)
        return pool(hidden, "mean")
