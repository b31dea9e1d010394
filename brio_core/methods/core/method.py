"""CORE: Wang et al., When Brain Networks Travel: Learning Beyond Site, 2026, reimplemented.

Neither code nor full text is known to us: the abstract names the steps, the rest is our design.
Edges whose diagnostic effect is reproduced at every training site, with age, sex and motion in the
same robust regression, are the nodes of a line graph. A subject's course of these edges over
sliding windows is summed up in a few numbers per edge; gates that start at the edges' stability
decide per subject what is passed on.

Window lengths count frames, because the repetition time is not known to a method. In a site's
regression an unknown covariate stands at the site's mean. A descriptor that does not vary among
training subjects is left out.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.connectivity import FISHER_Z
from brio_core.connectivity.graphs import normalised_adjacency
from brio_core.methods.core.scaffold import Group, scaffold_statistics
from brio_core.methods.core.sliding_windows import (
    N_DESCRIPTORS,
    describe_course,
    window_connectivity,
    window_members,
)
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod
from brio_core.methods.layers.norms import residual_norm
from brio_core.methods.layers.perceptrons import row_linear
from brio_core.methods.training_scans import TrainingScans, TrainView
from brio_core.system.blocks import mean_and_scale
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout

N_COVARIATES = 3
WIDTH = 1 + N_DESCRIPTORS
SCANS_AT_ONCE = 128
SMALLEST_PRIOR = 0.05
# Edges of the scaffold for the parcellations of the paper; else twice the number of ROIs.
SCAFFOLD_EDGES = {116: 256, 200: 384}


@dataclass(frozen=True)
class CoreHyperparameters(GradientHyperparameters):
    """``scaffold_edges`` K is the size of the scaffold (0: by the number of ROIs).

    Edges that fewer than ``least_stability`` of the ``bootstraps`` choose are dropped, down to a
    quarter of K. ``window`` is in frames.
    """

    # Windows are compared with the whole scan, both in Fisher z.
    kinds: ClassVar[tuple[str, ...]] = (FISHER_Z,)

    scaffold_edges: int
    bootstraps: int
    least_stability: float
    window: int
    hidden: int
    layers: int
    embedding_dim: int
    gate_hidden: int
    dropout: float
    lambda_gate: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for key, least in (("scaffold_edges", 0), ("bootstraps", 1), ("window", 4)):
            if getattr(self, key) < least:
                raise BrioError(f"{key} is {getattr(self, key)}, but must be at least {least}")

    def n_edges(self, n_rois: int) -> int:
        """K, or all edges if there are fewer."""
        wanted = self.scaffold_edges or SCAFFOLD_EDGES.get(n_rois, 2 * n_rois)
        return min(wanted, n_rois * (n_rois - 1) // 2)


class Gate(nn.Module):
    """How much of an edge a subject uses, (K, B): starts at the edge's prior."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.ones(()))
        self.first = nn.Linear(2 * WIDTH, hidden)
        self.last = nn.Linear(hidden, 1)
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)

    def forward(self, edges: Tensor, kept: Tensor, prior: Tensor) -> Tensor:
        """Logits of the gates of ``edges`` (K, B, 8); the mean is over those that are kept."""
        mean = (kept[:, None, None] * edges).sum(0) / kept.sum()
        own, common = self.first.weight.split(WIDTH, dim=1)
        hidden = edges @ own.T + (mean @ common.T + self.first.bias)
        return self.sharpness * prior[:, None] + self.last(functional.gelu(hidden)).squeeze(-1)


class GatedLayer(nn.Module):
    """``LayerNorm(h + GELU(W0 h + A (g * W1 h)))`` for nodes (K, B, d) and one graph for all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.own = nn.Linear(width, width)
        self.message = nn.Linear(width, width, bias=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor, gate: Tensor, operator: Tensor) -> Tensor:
        sent = gate[..., None] * row_linear(hidden, self.message.weight)
        own = row_linear(hidden, self.own.weight) + self.own.bias
        # Edges lead, so that the graph meets all subjects in one product.
        received = (operator @ sent.flatten(1)).view_as(sent)
        return residual_norm(hidden, own, received, self.norm)


class Core(GradientMethod):
    """The gated line graph of the fold's scaffold."""

    name = "core"
    Hyperparameters = CoreHyperparameters
    needs = ("fc", "bold", "frames", "covariates")
    min_frames = 20
    features_are_shared = False

    def __init__(self, hyperparameters: CoreHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        count = s.n_edges(n_rois)
        self.embedding = nn.Parameter(torch.randn(count, s.embedding_dim) / s.embedding_dim**0.5)
        self.enter = nn.Linear(WIDTH + 2 + s.embedding_dim, s.hidden)
        self.gate = Gate(s.gate_hidden)
        self.layers = nn.ModuleList(GatedLayer(s.hidden) for _ in range(s.layers))
        self.head = nn.Linear(s.hidden, 1)
        # Of the edges of the scaffold; those that are not kept fill it up to K.
        self.register_buffer("first", torch.zeros(count, dtype=torch.int64))
        self.register_buffer("second", torch.zeros(count, dtype=torch.int64))
        self.register_buffer("kept", torch.zeros(count))
        self.register_buffer("priors", torch.zeros(count, 2))
        self.register_buffer("slopes", torch.zeros(count, N_COVARIATES))
        self.register_buffer("covariate_mean", torch.zeros(N_COVARIATES))
        self.register_buffer("mean", torch.zeros(count, WIDTH))
        self.register_buffer("scale", torch.zeros(count, WIDTH))
        self.register_buffer("operator", torch.zeros(count, count))
        self.register_buffer("positive_weight", torch.ones(()))

    @classmethod
    def share(cls, scans: TrainingScans, hyperparameters: CoreHyperparameters) -> list[Features]:
        """Statistics of all edges from the training sites of every fold."""
        n_rois = scans.inputs(scans.rows[:1, 0])["fc"].shape[-1]
        folds = [
            Group(rows[site >= 0], site[site >= 0], label[site >= 0])
            for rows, site, label in zip(scans.rows, scans.site, scans.label)
        ]
        wanted = hyperparameters.n_edges(n_rois)
        return scaffold_statistics(folds, scans.inputs, hyperparameters.bootstraps, wanted)

    def prepare(self, train: TrainView) -> None:
        inputs = {need: getattr(train, need) for need in self.needs}
        statistics = train.shared or self._statistics(train, inputs)
        self._choose_edges(statistics)
        known = train.covariates.isfinite()
        total = train.covariates.where(known, 0).sum(0)
        self.covariate_mean.copy_(total / known.sum(0).clamp_min(1))
        positive = train.label.sum()
        self.positive_weight.copy_((len(train.label) - positive) / positive.clamp_min(1))
        described = torch.cat(
            [
                self.describe({name: value[rows] for name, value in inputs.items()})
                for rows in torch.arange(len(train.label)).split(SCANS_AT_ONCE)
            ]
        )
        mean, scale = mean_and_scale(described.double().flatten(1))
        self.mean.copy_(mean.view_as(self.mean))
        self.scale.copy_(scale.view_as(self.scale))

    def _statistics(self, train: TrainView, inputs: Features) -> Features:
        everyone = torch.arange(len(train.label), device=train.label.device)
        (statistics,) = scaffold_statistics(
            [Group(everyone, train.site, train.label)],
            lambda rows: {name: value[rows] for name, value in inputs.items()},
            self.hyperparameters.bootstraps,
            len(self.kept),
        )
        return statistics

    def _choose_edges(self, statistics: Features) -> None:
        """The K most stable edges, ties by score; of these the stable ones are kept."""
        score, stability = statistics["score"], statistics["stability"]
        order = score.sort(descending=True, stable=True).indices
        order = order[stability[order].sort(descending=True, stable=True).indices]
        chosen = order[: len(self.kept)]
        rank = torch.arange(len(chosen), device=chosen.device)
        kept = (stability[chosen] >= self.hyperparameters.least_stability) | (
            rank < len(chosen) // 4
        )
        first, second = torch.triu_indices(self.n_rois, self.n_rois, 1, device=chosen.device)
        effect = statistics["effect"][chosen]
        spread = effect[kept].std(correction=0).clamp_min(1e-12)
        self.first.copy_(first[chosen])
        self.second.copy_(second[chosen])
        self.kept.copy_(kept)
        self.priors.copy_(torch.stack([stability[chosen], effect / spread], -1) * kept[:, None])
        self.slopes.copy_(statistics["slopes"][chosen])
        neighbours = line_graph(self.first, self.second) & kept & kept[:, None]
        self.operator.copy_(normalised_adjacency(neighbours.to(self.operator.dtype)))

    def describe(self, inputs: Features) -> Tensor:
        """The deconfounded z of every scaffold edge and how its course goes, (B, K, 8)."""
        known = inputs["covariates"].isfinite()
        # No site intercept is removed: an unseen site has none.
        covariates = (inputs["covariates"] - self.covariate_mean).where(known, 0)
        confounded = (covariates[:, None, :] * self.slopes).sum(-1)
        static = inputs["fc"][:, self.first, self.second] - confounded
        bold = inputs["bold"]
        members = window_members(inputs["frames"], bold.shape[1], self.hyperparameters.window)
        course = window_connectivity(bold, members, self.first, self.second)
        described = describe_course(course, members.any(-1))
        return torch.cat([static[..., None], described], -1)

    def make_features(self, inputs: Features) -> Features:
        """Descriptors of the scaffold edges, standardised on training subjects."""
        return {"edges": (self.describe(inputs) - self.mean) * self.scale}

    def represent(self, features: Features) -> Tensor:
        """The gated mean over edges."""
        return self.encode(features)[0]

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        pooled, gate_logits = self.encode(batch.features)
        pooled = dropout(pooled, self.hyperparameters.dropout, batch.key)
        classification = functional.binary_cross_entropy_with_logits(
            self.head(pooled).squeeze(-1),
            batch.label.to(pooled.dtype),
            pos_weight=self.positive_weight,
        )
        gate = self.gate_divergence(gate_logits)
        logs = {"classification": classification, "gate": gate, "scaffold": self.kept.sum()}
        return classification + self.hyperparameters.lambda_gate * gate, logs

    def encode(self, features: Features) -> tuple[Tensor, Tensor]:
        """The gated mean over edges (B, d), and the gates' logits (K, B)."""
        edges = features["edges"].transpose(0, 1)
        logits = self.gate(edges, self.kept, self.prior_logit())
        gate = logits.sigmoid() * self.kept[:, None]
        own, fixed = self.enter.weight.split([WIDTH, self.enter.in_features - WIDTH], dim=1)
        # What belongs to an edge and not to a subject is the same for all of the batch.
        identity = torch.cat([self.priors, self.embedding], -1) @ fixed.T + self.enter.bias
        hidden = functional.gelu(edges @ own.T + identity[:, None])
        for layer in self.layers:
            hidden = layer(hidden, gate, self.operator)
        pooled = (gate[..., None] * hidden).sum(0) / gate.sum(0)[:, None]
        return pooled, logits

    def prior_logit(self) -> Tensor:
        """The logit of the clipped stability of every edge, (K,)."""
        return self.priors[:, 0].clamp(SMALLEST_PRIOR, 1 - SMALLEST_PRIOR).logit()

    def gate_divergence(self, logits: Tensor) -> Tensor:
        """KL of the gates from the clipped priors, averaged over kept edges and subjects."""
        prior = self.prior_logit()[:, None]
        gate = logits.sigmoid()
        opened = functional.logsigmoid(logits) - functional.logsigmoid(prior)
        closed = functional.logsigmoid(-logits) - functional.logsigmoid(-prior)
        divergence = gate * opened + (1 - gate) * closed
        return (divergence * self.kept[:, None]).sum() / (self.kept.sum() * logits.shape[1])


def line_graph(first: Tensor, second: Tensor) -> Tensor:
    """Which edges (first[k], second[k]) have an end in common, bool (K, K), none with itself."""
    ends = torch.stack([first, second], -1)
    shared = (ends[:, None, :, None] == ends[None, :, None, :]).flatten(-2).any(-1)
    return shared & ~torch.eye(len(first), dtype=torch.bool, device=first.device)
