"""GAT: Velickovic et al., Graph Attention Networks, 2018.

Graph-level reading: two attention layers over the subject's own graph with FC rows as node
features, mean over nodes, one linear layer. Attention is that of the paper (version 1), whose
ranking of senders is the same for all receivers.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout, fold_in


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
    edge_weight: Literal["binary", "signed"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise BrioError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")


class DenseGat(nn.Module):
    """Graph attention (version 1) with concatenated heads.

    ``e_ij = LeakyReLU(a_receiver . z_i + a_sender . z_j)`` with z = W x; receiver i takes the mean
    of its senders' z_j with weights softmax_j(e_ij). ``weighted`` adds ``c w_ij`` before the
    LeakyReLU, one scalar c per head that starts at 0.
    """

    slope = 0.2

    def __init__(self, before: int, heads: int, units: int, weighted: bool = False) -> None:
        super().__init__()
        self.heads, self.units = heads, units
        self.project = nn.Linear(before, heads * units, bias=False)
        self.receiver = nn.Parameter(torch.empty(heads, units))
        self.sender = nn.Parameter(torch.empty(heads, units))
        self.bias = nn.Parameter(torch.zeros(heads * units))
        self.edge = nn.Parameter(torch.zeros(heads)) if weighted else None
        for weight in (self.project.weight, self.receiver, self.sender):
            nn.init.xavier_uniform_(weight)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor,
        weights: Tensor | None = None,
        probability: float = 0.0,
        key: Tensor | None = None,
        stream: int = 0,
    ) -> Tensor:
        """Nodes (B, P, d) to (B, P, heads * units).

        ``mask`` (B, P, P) says which senders j a receiver i hears, itself among them. With a key,
        attention is dropped with ``probability`` and not normalised again.
        """
        values = self.project(hidden).unflatten(-1, (self.heads, self.units))
        probability = 0.0 if key is None else probability
        if self.edge is None and kernels.usable(values, "attention"):
            heard = self._attend_fused(values, mask, probability, key, stream)
        else:
            attention = self._attend(values, mask, weights)
            attention = dropout(attention, probability, key, stream)
            heard = (attention @ values.transpose(-2, -3)).transpose(-2, -3)
        return heard.flatten(-2) + self.bias

    def attention(self, hidden: Tensor, mask: Tensor, weights: Tensor | None = None) -> Tensor:
        """Attention (B, heads, P, P) of receivers (rows) on senders (columns)."""
        values = self.project(hidden).unflatten(-1, (self.heads, self.units))
        return self._attend(values, mask, weights)

    def _scores(self, values: Tensor) -> tuple[Tensor, Tensor]:
        # Sums, not matrix products: attention logits keep their 24 bits on a GPU.
        return (values * self.receiver).sum(-1), (values * self.sender).sum(-1)

    def _attend(self, values: Tensor, mask: Tensor, weights: Tensor | None) -> Tensor:
        receiver, sender = (score.mT for score in self._scores(values))
        logits = receiver[..., :, None] + sender[..., None, :]
        if self.edge is not None:
            logits = logits + self.edge[:, None, None] * weights[..., None, :, :]
        logits = functional.leaky_relu(logits, self.slope)
        return logits.masked_fill(~mask[..., None, :, :], float("-inf")).softmax(-1)

    def _attend_fused(
        self, values: Tensor, mask: Tensor, probability: float, key: Tensor | None, stream: int
    ) -> Tensor:
        from brio_core.kernels.attention import GraphAttention

        # The place that ``randomness.uniform`` looks up for this stream.
        key = mask.new_zeros((), dtype=torch.int64) if key is None else fold_in(key, stream + 1)
        vectors = (self.receiver, self.sender)
        return GraphAttention.apply(values, *vectors, mask, key, probability, self.slope)[0]


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

    def make_features(self, inputs: Features) -> Features:
        """Whom every ROI hears, itself included, and FC rows as node features."""
        fc = inputs["fc"]
        oneself = torch.eye(fc.shape[-1], dtype=torch.bool, device=fc.device)
        return {"mask": subject_graph(fc, self.hyperparameters.density) | oneself, "nodes": fc}

    def represent(self, features: Features) -> Tensor:
        return self._encode(features, None)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        logits = self.head(self._encode(batch.features, batch.key)).squeeze(-1)
        return binary_cross_entropy(logits, batch.label), {}

    def _encode(self, features: Features, key: Tensor | None) -> Tensor:
        s, hidden, fc = self.hyperparameters, features["nodes"], features["nodes"]
        for layer, attend in enumerate(self.attentions):
            hidden = dropout(hidden, s.dropout, key, stream=2 * layer)
            heard = attend(
                hidden, features["mask"], fc, s.attention_dropout, key, stream=2 * layer + 1
            )
            hidden = functional.elu(heard)
        return hidden.mean(-2)
