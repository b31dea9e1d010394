"""DiSCO: Sun et al., Diverse and Sparse Mixture-of-Experts for Causal Subgraphs, 2026.

Every expert keeps edges of its own by random binary masks, reads what is left with a GIN of its
own, and predicts. A gate sees how sure and how different the experts are and mixes them sparsely.

Departures, where the released code is wrong or the interface asks for it: evaluation takes the
mask that the coded rule draws in half of the cases, while the code draws at random there too; the
gate standardises its inputs by running statistics, while the code does so over the test batch,
and its five inputs that carry nothing are left out; a GIN counts the centre once, not twice; both
directions of an edge share their logit and their noise. The representation is the gated sum of
the experts' pooled nodes: each expert has a last hidden layer of its own, so any single vector is
a choice.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.methods.disco.experts import (
    ExpertGin,
    ExpertLinear,
    SlowLinear,
    entmax,
    side_by_side,
)
from brio_core.methods.disco.graphs import ExpertGraphs
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import TRAIN, Batch, Features, GradientMethod, margin
from brio_core.methods.layers.edge_lists import EdgeLists, listed_features
from brio_core.methods.layers.edge_masks import binary_masks, diversity_hinge, keep_rate
from brio_core.methods.layers.edge_scores import edge_scores
from brio_core.system.errors import BrioError

MASKS, SELECTOR, EXPERTS = 0, 100, 200
ALLOWED_CORRELATION = 0.10
TEACHER_TEMPERATURE = 0.75
SHARPNESS = 5
SMALLEST = 1e-12


@dataclass(frozen=True)
class DiscoHyperparameters(GradientHyperparameters):
    """Routing is uniform for ``warmup_epochs``; checkpoints are eligible afterwards.

    ``keep_share`` is the share of edges an expert should keep (the paper's rho), ``noise`` that
    of its masks: ``gumbel`` as coded by the authors, or ``logistic``.
    """

    experts: int
    hidden: int
    layers: int
    dropout: float
    density: float
    selector_hidden: int
    noise: Literal["gumbel", "logistic"]
    temperature: float
    keep_share: float
    alpha: float
    gate_hidden: int
    gate_learning_rate: float
    warmup_epochs: int
    lambda_keep: float
    lambda_diversity: float
    lambda_gate: float
    lambda_balance: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.alpha <= 2:
            raise BrioError(f"alpha is {self.alpha}, but must lie between 1 and 2")
        first = min(self.epochs, self.warmup_epochs + 1)
        object.__setattr__(self, "first_epoch", max(self.first_epoch, first))


class Opinions(NamedTuple):
    """Of every expert: logits (B, K, 2), pooled nodes (B, K, d), edge and node masks (B, K, .)."""

    logits: Tensor
    pooled: Tensor
    edges: Tensor
    nodes: Tensor


class EdgeSelector(nn.Module):
    """Per expert a network ``[h_i ; h_j] - Linear - ReLU - Linear`` that selects edges."""

    def __init__(self, hyperparameters: DiscoHyperparameters) -> None:
        super().__init__()
        s = hyperparameters
        self.noise, self.temperature = s.noise, s.temperature
        self.first = ExpertLinear(s.experts, 2 * s.hidden, s.selector_hidden)
        self.last = ExpertLinear(s.experts, s.selector_hidden, 1)

    def forward(self, nodes: Tensor, edges: EdgeLists, key: Tensor | None) -> Tensor:
        """Masks on undirected edges (K, B, E); random with a key."""
        send, receive = self.first.weight.chunk(2, 1)
        sender = side_by_side(nodes, send) + self.first.bias
        receiver = side_by_side(nodes, receive)
        scores = mean_scores(sender, receiver, self.last.weight.squeeze(-1), edges)
        bias = self.last.bias.squeeze(-1)
        return binary_masks(scores, bias, edges, key, MASKS, self.noise, self.temperature)


def mean_scores(sender: Tensor, receiver: Tensor, weight: Tensor, edges: EdgeLists) -> Tensor:
    """The mean of both directions' :func:`edge_scores`, (K, B, E)."""
    if kernels.usable(sender, "edge_scores"):
        from brio_core.kernels.edge_scores import EdgeScores

        lists = (edges.pairs, edges.order, edges.starts)
        return EdgeScores.apply(sender, receiver, weight, *lists, True)[0]
    return edge_scores(sender, receiver, weight, edges).mean(-2)


class Gate(nn.Module):
    """Weights of the experts (B, K) from statistics of their predictions; a small slow network."""

    def __init__(self, hidden: int, fraction: float, alpha: float) -> None:
        super().__init__()
        self.alpha = alpha
        self.norm = nn.BatchNorm1d(5, affine=False)
        self.first = SlowLinear(5, hidden, fraction)
        # No bias: entmax does not see what all scores have in common.
        self.last = SlowLinear(hidden, 1, fraction, bias=False)

    def forward(self, logits: Tensor) -> Tensor:
        """``logits`` (B, K, 2) are taken as constants: the gate does not train the experts."""
        statistics = self.statistics(logits.detach())
        standard = self.norm(statistics.flatten(0, 1)).view_as(statistics)
        return entmax(self.last(self.first(standard).relu()).squeeze(-1), self.alpha)

    @staticmethod
    def statistics(logits: Tensor) -> Tensor:
        """Largest probability, margin, entropy, energy, and agreement with others, (B, K, 5)."""
        log_p = logits.log_softmax(-1)
        p = log_p.exp()
        entropy = -(p * log_p).sum(-1)
        # KL(k || l) + KL(l || k) = sum_c (p_k - p_l) (log p_k - log p_l).
        jeffreys = (p[:, :, None] - p[:, None]) * (log_p[:, :, None] - log_p[:, None])
        others = max(1, logits.shape[1] - 1)
        disagreement = jeffreys.sum((-1, -2)) / (2 * others)
        margin = (p[..., 1] - p[..., 0]).abs()
        energy = -logits.logsumexp(-1)
        return torch.stack([p.amax(-1), margin, entropy, energy, -disagreement], -1)


class Disco(GradientMethod):
    """A shared selector encoder, K experts on subgraphs of their own, and a gate."""

    name = "disco"
    Hyperparameters = DiscoHyperparameters

    def __init__(self, hyperparameters: DiscoHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        self.selector = ExpertGin(1, n_rois, s.hidden, s.layers, s.dropout)
        self.edge_selector = EdgeSelector(s)
        self.encoder = ExpertGin(s.experts, n_rois, s.hidden, s.layers, s.dropout)
        self.head = nn.Sequential(
            ExpertLinear(s.experts, s.hidden, s.hidden),
            nn.ReLU(),
            ExpertLinear(s.experts, s.hidden, 2),
        )
        self.gate = Gate(s.gate_hidden, s.gate_learning_rate, s.alpha)

    def make_features(self, inputs: Features) -> Features:
        return listed_features(inputs["fc"], self.hyperparameters.density)

    def represent(self, features: Features) -> Tensor:
        """The experts' pooled nodes, mixed by the gate."""
        opinions = self.ask(features, None)
        return (self.gate(opinions.logits)[..., None] * opinions.pooled).sum(1)

    def logits(self, features: Features) -> Tensor:
        opinions = self.ask(features, None)
        return margin((self.gate(opinions.logits)[..., None] * opinions.logits).sum(1))

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.hyperparameters
        opinions = self.ask(batch.features, batch.key)
        present = EdgeLists.of(batch.features).present
        gate = self.gate(opinions.logits)
        routing = gate if phase == TRAIN else torch.full_like(gate, 1 / s.experts)
        # Each expert answers for itself; the mixture is not trained as one.
        errors = cross_entropies(opinions.logits, batch.label)
        logs = {
            "classification": (routing * errors).sum(-1).mean(),
            "keep": keep_penalty(opinions.edges, present, routing, s.keep_share),
            "diversity": self.diversity(opinions, present),
            "gate": teacher_divergence(gate, errors) + s.lambda_balance * load_balance(gate),
            "experts_used": (gate.detach() > 0).to(gate.dtype).sum(-1).mean(),
        }
        loss = (
            logs["classification"]
            + s.lambda_keep * logs["keep"]
            + s.lambda_diversity * logs["diversity"]
            + s.lambda_gate * logs["gate"]
        )
        return loss, logs

    def ask(self, features: Features, key: Tensor | None) -> Opinions:
        """What every expert keeps of every graph, and makes of it; random with a key."""
        edges = EdgeLists.of(features)
        nodes = features["nodes"]
        selected = self.selector(nodes, ExpertGraphs(edges), key, SELECTOR).squeeze(0)
        masks = self.edge_selector(selected, edges, key)
        graphs = ExpertGraphs(edges, masks)
        pooled = self.encoder(nodes, graphs, key, EXPERTS).mean(-2)
        parts = (self.head(pooled), pooled, masks, graphs.kept)
        return Opinions(*(part.transpose(0, 1) for part in parts))

    @staticmethod
    def diversity(opinions: Opinions, present: Tensor) -> Tensor:
        """Half the hinge on edge masks and half that on node masks."""
        edge = diversity_hinge(opinions.edges, present, ALLOWED_CORRELATION)
        everywhere = torch.ones_like(opinions.nodes[:, 0])
        node = diversity_hinge(opinions.nodes, everywhere, ALLOWED_CORRELATION)
        return (edge + node) / 2


def cross_entropies(logits: Tensor, label: Tensor) -> Tensor:
    """Cross-entropy of every expert for every subject, (B, K)."""
    log_p = logits.log_softmax(-1)
    return -torch.where(label[:, None] == 1, log_p[..., 1], log_p[..., 0])


def keep_penalty(masks: Tensor, present: Tensor, routing: Tensor, wanted: float) -> Tensor:
    """Squared distance of keep rates from the wanted one; experts count as they are used."""
    distance = (keep_rate(masks, present[:, None]) - wanted).square().mean(0)
    return (routing.mean(0).detach() * distance).sum()


def teacher_divergence(gate: Tensor, errors: Tensor) -> Tensor:
    """``KL(p || q)``, as the authors' code computes it, with q from the experts' errors."""
    teacher = (-errors.detach() / TEACHER_TEMPERATURE).log_softmax(-1)
    return (gate * (gate.clamp_min(SMALLEST).log() - teacher)).sum(-1).mean()


def load_balance(gate: Tensor) -> Tensor:
    """Spread use over experts, sharp weights as well, while each subject uses few of them."""
    entropy = -(gate * gate.clamp_min(SMALLEST).log()).sum(-1).mean()
    sharp = gate.pow(SHARPNESS)
    sharp = sharp / sharp.sum(-1, keepdim=True).clamp_min(SMALLEST)
    return _from_uniform(gate.mean(0)) + 0.2 * entropy + 0.2 * _from_uniform(sharp.mean(0))


def _from_uniform(use: Tensor) -> Tensor:
    """``KL(u || use)`` of the uniform distribution u."""
    return -(use.clamp_min(SMALLEST) * len(use)).log().mean()
