"""BrainNetTF: Kan et al., Brain Network Transformer, NeurIPS 2022.

Two Transformer layers read the FC rows of all ROIs, an orthonormal clustering readout turns the
ROIs into K clusters, and a small network reads the clusters. Training mixes subjects (mixup) and
sums the cross-entropy over the batch.

Departures: all centres have norm 1, while the authors' code leaves the first one as drawn. Keys
have no bias, because a softmax does not see it. The authors keep the model of the last epoch; here
validation chooses.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, margin
from brio_core.methods.layers.perceptrons import drawn, dropout_norm, relu_dropout
from brio_core.methods.layers.series import Blend, draw_blend, mix
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout

# Fisher z has no bound: one pair of equal signals must not outweigh a whole scan.
LARGEST = math.atanh(0.999)
# Streams of random numbers; mixup takes two.
MIXUP, LAYERS = 0, 2


# Tensor cores read rows at full speed whose length is a multiple of 8 numbers.
GRAIN = 8


class SelfAttention(nn.Module):
    """Dense multi-head attention of P nodes on each other; initial weights as in torch's own.

    Keys have no bias: it would add the same number to all scores of a row, which a softmax does
    not see, and would learn rounding noise.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.units = heads, width // heads
        self.enter = nn.Linear(width, 3 * width, bias=False)
        self.query_bias = nn.Parameter(torch.zeros(width))
        self.value_bias = nn.Parameter(torch.zeros(width))
        self.leave = nn.Linear(width, width, bias=False)
        nn.init.xavier_uniform_(self.enter.weight)

    def forward(
        self, nodes: Tensor, rate: float = 0.0, key: Tensor | None = None, stream: int = 0
    ) -> Tensor:
        """Nodes (B, P, d) to (B, P, d), without the last bias; a key drops attention."""
        enter, leave = self._filled()
        heard = attend(nodes, enter, self.units, rate, key, stream)
        return heard @ leave.flatten(1).T

    def _filled(self) -> tuple[Tensor, Tensor]:
        """Weights with heads filled up, (3, H, U, d) and (d, H, U); they hold the biases.

        :func:`attend` puts ones into the first filled place of queries and values. What a query's
        bias adds to the score of a key, and what a value's bias adds to the answer, are then
        products of weights: no bias has to be added to tensors of the nodes' size.
        """
        shape = (self.heads, self.units)
        fill = GRAIN - self.units % GRAIN
        query, sent, value = self.enter.weight.unflatten(0, (3, *shape)).unbind()
        scale = self.units**-0.5
        biased = (scale * self.query_bias.view(*shape, 1) * sent).sum(-2, keepdim=True)
        enter = [
            functional.pad(query * scale, (0, 0, 0, fill)),
            functional.pad(torch.cat([sent, biased], -2), (0, 0, 0, fill - 1)),
            functional.pad(value, (0, 0, 0, fill)),
        ]
        last = self.leave.weight.unflatten(1, shape)
        biased = (last * self.value_bias.view(shape)).sum(-1, keepdim=True)
        leave = functional.pad(torch.cat([last, biased], -1), (0, fill - 1))
        return torch.stack(enter), leave


def attend(
    nodes: Tensor, enter: Tensor, spare: int, rate: float, key: Tensor | None, stream: int
) -> Tensor:
    """What every head hears, nodes (B, P, d) to (B, P, H * U), by weights (3, H, U, d).

    Place ``spare`` of queries and values is set to one; a key drops attention.
    """
    # Mixed precision is left to torch.
    plain = torch.is_autocast_enabled(nodes.device.type)
    if not plain and kernels.usable(nodes, "head_attention"):
        from brio_core.kernels.head_attention import HeadAttention

        seed, rate = drawn(nodes, rate, key, stream)
        return HeadAttention.apply(enter, nodes, seed, spare, rate)[0]
    entered = (nodes @ enter.flatten(0, 2).T).unflatten(-1, enter.shape[:-1])
    query, sent, value = (part.transpose(-2, -3) for part in entered.unbind(-3))
    ones = (torch.arange(enter.shape[-2], device=nodes.device) == spare).to(nodes.dtype)
    attention = ((query + ones) @ sent.mT).softmax(-1)
    attention = dropout(attention, rate, key, stream)
    return (attention @ (value + ones)).transpose(-2, -3).flatten(-2)


class EncoderLayer(nn.Module):
    """Attention and a ReLU network, each added to its input and followed by a LayerNorm."""

    # Streams of random numbers that one layer takes.
    streams = 4

    def __init__(self, width: int, heads: int, feedforward: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.attention = SelfAttention(width, heads)
        self.attention_bias = nn.Parameter(torch.zeros(width))
        self.attention_norm = nn.LayerNorm(width)
        self.first = nn.Linear(width, feedforward)
        self.second = nn.Linear(feedforward, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: Tensor, key: Tensor | None = None, stream: int = 0) -> Tensor:
        """Nodes (B, P, d) to (B, P, d); with a key, dropout in all four places."""
        heard = self.attention(nodes, self.rate, key, stream)
        nodes = dropout_norm(
            nodes, heard, self.attention_bias, self.attention_norm, self.rate, key, stream + 1
        )
        inner = nodes @ self.first.weight.T
        inner = relu_dropout(inner, self.first.bias, self.rate, key, stream + 2)
        added = inner @ self.second.weight.T
        return dropout_norm(nodes, added, self.second.bias, self.norm, self.rate, key, stream + 3)


class OrthonormalReadout(nn.Module):
    """``G = Q^T Z`` with ``q_uk = softmax_k((z_u . c_k)^2)``; the K <= d centres are not learnt."""

    def __init__(self, clusters: int, width: int) -> None:
        super().__init__()
        # The QR decomposition of a Gaussian matrix gives directions without preference.
        centres = torch.linalg.qr(torch.randn(width, clusters)).Q.T
        self.register_buffer("centres", centres.contiguous())

    def assign(self, nodes: Tensor) -> Tensor:
        """Soft assignment (..., P, K) of nodes (..., P, d); rows sum to 1."""
        return (nodes @ self.centres.T).square().softmax(-1)

    def forward(self, nodes: Tensor) -> Tensor:
        """Nodes (..., P, d) to clusters (..., K, d)."""
        return self.assign(nodes).mT @ nodes


@dataclass(frozen=True)
class BrainNetTfHyperparameters(GradientHyperparameters):
    """Sizes of the network; ``heads`` or ``clusters`` 0 leave the choice to the number of ROIs.

    ``input`` is ``fisher-z`` (diagonal 0) or ``pearson`` (diagonal 1).
    """

    input: Literal["fisher-z", "pearson"]
    layers: int
    heads: int
    feedforward: int
    dropout: float
    bottleneck: int
    clusters: int
    cluster_dim: int
    readout_hidden: int
    readout_dim: int
    mixup: bool

    def heads_for(self, n_rois: int) -> int:
        """The heads of every layer: 4, 2 or 1, whatever divides the number of ROIs."""
        if self.heads and n_rois % self.heads:
            raise BrioError(
                f"brainnettf: heads is {self.heads}, which does not divide the {n_rois} ROIs; "
                "choose a divisor, or 0 for the largest of 4, 2 and 1"
            )
        return self.heads or next(heads for heads in (4, 2, 1) if n_rois % heads == 0)

    def clusters_for(self, n_rois: int) -> int:
        """The clusters: 100, or half of fewer than 100 ROIs."""
        if self.clusters > n_rois:
            raise BrioError(
                f"brainnettf: clusters is {self.clusters}, but there are only {n_rois} orthogonal "
                f"directions for {n_rois} ROIs; choose fewer, or 0 for the default"
            )
        return self.clusters or (100 if n_rois >= 100 else math.ceil(n_rois / 2))


class BrainNetTf(GradientMethod):
    """Transformer layers, whole-graph bottleneck, clusters, two-logit head."""

    name = "brainnettf"
    Hyperparameters = BrainNetTfHyperparameters

    def __init__(
        self, hyperparameters: BrainNetTfHyperparameters, n_rois: int, n_sites: int
    ) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        heads, clusters = s.heads_for(n_rois), s.clusters_for(n_rois)
        self.layers = nn.ModuleList(
            EncoderLayer(n_rois, heads, s.feedforward, s.dropout) for _ in range(s.layers)
        )
        # One network for the graph as a whole, not one that every ROI goes through.
        self.bottleneck = _network(n_rois**2, s.bottleneck, s.bottleneck, n_rois**2)
        self.clusters = OrthonormalReadout(clusters, n_rois)
        self.reduce = _network(n_rois, s.cluster_dim)
        self.readout = _network(clusters * s.cluster_dim, s.readout_hidden, s.readout_dim)
        self.head = nn.Linear(s.readout_dim, 2)

    def make_features(self, inputs: Features) -> Features:
        """FC rows as node features."""
        fc = inputs["fc"].clamp(-LARGEST, LARGEST)
        if self.hyperparameters.input == "pearson":
            fc = fc.tanh() + torch.eye(self.n_rois, dtype=fc.dtype, device=fc.device)
        return {"nodes": fc}

    def represent(self, features: Features) -> Tensor:
        """What enters the last linear layer, after its LeakyReLU."""
        return self.encode(features["nodes"], None)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        blend = (
            draw_blend(batch.key, len(batch.label), MIXUP) if self.hyperparameters.mixup else None
        )
        return self.mixed_loss(batch, blend), {}

    def mixed_loss(self, batch: Batch, blend: Blend | None) -> Tensor:
        """Cross-entropy with mixed labels, summed over the mixed subjects."""
        nodes, label = batch.features["nodes"], batch.label.to(batch.features["nodes"].dtype)
        if blend is not None:
            nodes, label = mix(nodes, blend), mix(label, blend)
        logits = margin(self.head(self.encode(nodes, batch.key)))
        return functional.binary_cross_entropy_with_logits(logits, label, reduction="sum")

    def encode(self, nodes: Tensor, key: Tensor | None) -> Tensor:
        """FC rows (B, P, P) to representations; with a key, dropout inside the layers."""
        for number, layer in enumerate(self.layers):
            nodes = layer(nodes, key, LAYERS + number * EncoderLayer.streams)
        nodes = self.bottleneck(nodes.flatten(-2)).view_as(nodes)
        clusters = functional.leaky_relu(self.reduce(self.clusters(nodes)))
        return functional.leaky_relu(self.readout(clusters.flatten(-2)))


def _network(*widths: int) -> nn.Sequential:
    """Linear layers with LeakyReLU between them."""
    parts: list[nn.Module] = []
    for before, after in pairwise(widths):
        parts += [nn.LeakyReLU(), nn.Linear(before, after)]
    return nn.Sequential(*parts[1:])
