"""BrainOOD: Xu et al., Out-of-distribution Generalizable Brain Network Analysis, 2025.

A learnt mask, the same for all subjects, selects features of nodes. A GIN reads the graph, a small
network scores its edges, and the same GIN reads random subgraphs drawn by these scores; their
predictions are averaged. The nodes of the first pass must also reconstruct FC.

Departures from the released code, where it is wrong or the interface asks for it: evaluation
weighs messages by the chance of an edge to be drawn, while the code draws at random there too;
attention is averaged over the two directions of an edge, while the code averages each direction
with itself, and an edge is drawn once for both; the high-pass filter is x minus the mean of its
neighbours, while the code's is minus their sum; the spread of edge logits is taken over subjects
that have the edge; reconstruction aims at tanh of Fisher z off the diagonal, for tanh cannot reach
beyond one. The virtual node of the reconstruction cancels in the high-pass filter and is left out.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from brio_core.connectivity.fisher_z import without_diagonal
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import TRAIN, Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.methods.layers.edge_lists import EdgeLists, listed_features
from brio_core.methods.layers.edge_masks import (
    alignment,
    bernoulli_divergence,
    drawn_attention,
    drawn_graphs,
)
from brio_core.methods.layers.extractors import make_extractor
from brio_core.methods.layers.norms import NodeNorm, norm_relu
from brio_core.methods.layers.perceptrons import row_linear
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout

FIRST_RATE, DROP = 0.9, 0.1
# Streams of random numbers; pass r of the GIN takes the selector's stream and those of its layers
# from PASSES + 10 r on.
EXTRACTOR, ATTENTION, MASKS, RECONSTRUCTION, PASSES = 0, 1, 2, 10, 100


class WideGin(nn.Module):
    """``MLP(x_i + sum_j O_ij x_j)``, MLP = Linear - BatchNorm - ReLU - Linear, wider inside.

    Neither Linear has a bias: a BatchNorm follows the second one as well.
    """

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.first = nn.Linear(before, 2 * after, bias=False)
        self.norm = NodeNorm(2 * after)
        self.second = nn.Linear(2 * after, after, bias=False)

    def forward(self, hidden: Tensor, operator: Tensor, looped: bool = False) -> Tensor:
        """``looped`` says that the operator's diagonal holds the node itself."""

        def hear(values: Tensor) -> Tensor:
            heard = operator @ values
            return heard if looped else values + heard

        # The sum over neighbours and the first Linear commute: the narrower comes first.
        if self.first.in_features > self.first.out_features:
            hidden = hear(row_linear(hidden, self.first.weight))
        else:
            hidden = row_linear(hear(hidden), self.first.weight)
        return row_linear(norm_relu(hidden, self.norm), self.second.weight)


class VirtualGin(nn.Module):
    """WideGin - BatchNorm - ReLU - dropout, the shift, WideGin - BatchNorm - dropout.

    Two layers read the virtual node once, before it was ever updated: it is a learnt shift of all
    nodes between the layers. It starts as an embedding does, with normal numbers of deviation 1.
    """

    def __init__(self, before: int, hidden: int, rate: float, virtual: bool = True) -> None:
        super().__init__()
        self.rate = rate
        self.first = WideGin(before, hidden)
        self.first_norm = NodeNorm(hidden)
        self.virtual = nn.Parameter(torch.randn(hidden)) if virtual else None
        self.second = WideGin(hidden, hidden)
        self.second_norm = NodeNorm(hidden)

    def forward(
        self, nodes: Tensor, operator: Tensor, key: Tensor | None, stream: int, looped: bool = False
    ) -> Tensor:
        """Nodes (B, P, d) to (B, P, hidden) over ``operator`` (B, P, P).

        A node hears itself in addition, unless ``looped`` says that the operator's diagonal
        sees to that: with large graphs this saves passes over the nodes, each way.
        With a key units are dropped, by the random numbers of ``stream`` and the one after it.
        """
        hidden = self.first(nodes, operator, looped)
        hidden = norm_relu(hidden, self.first_norm, self.rate, key, stream)
        if self.virtual is not None:
            hidden = hidden + self.virtual
        hidden = self.second(hidden, operator, looped)
        return norm_relu(hidden, self.second_norm, self.rate, key, stream + 1, relu=False)


@dataclass(frozen=True)
class BrainOodHyperparameters(GradientHyperparameters):
    """``rounds`` subgraphs are drawn of every graph.

    ``extractor_hidden`` are the widths of the edge network's one or two hidden layers.

    ``soft_init`` starts the selector's embedding at deviation hidden^-1/2 instead of 1.
    ``high_pass`` is ``mean`` (x minus the mean of its neighbours) or ``sum`` (minus their sum, as
    coded), ``absent_edges`` says how the alignment counts edges that a subject lacks: ``skip``, or
    ``zero`` as coded. The information term has GSAT's rate r, which falls from 0.9 by 0.1 every
    ``decay_epochs`` epochs until it is ``final_rate``.
    """

    hidden: int
    dropout: float
    selector_dropout: float
    soft_init: bool
    extractor_hidden: tuple[int, ...]
    extractor_dropout: float
    rounds: int
    high_pass: Literal["mean", "sum"]
    absent_edges: Literal["skip", "zero"]
    density: float
    lambda_information: float
    final_rate: float
    decay_epochs: int
    lambda_alignment: float
    lambda_reconstruction: float
    lambda_entropy: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.final_rate <= FIRST_RATE:
            raise BrioError(f"final_rate is {self.final_rate}, but must be in (0, {FIRST_RATE}]")

    def rate(self, epoch: int) -> float:
        """r in an epoch (from 1)."""
        return max(self.final_rate, FIRST_RATE - DROP * ((epoch - 1) // self.decay_epochs))


class FeatureSelector(nn.Module):
    """One mask ``sigmoid(E E^T)`` on the node features of all subjects."""

    def __init__(self, n_rois: int, hidden: int, rate: float, deviation: float) -> None:
        super().__init__()
        self.rate = rate
        self.embedding = nn.Parameter(deviation * torch.randn(n_rois, hidden))

    def forward(self, key: Tensor | None, stream: int) -> Tensor:
        """The mask (P, P); with a key, some entries are dropped."""
        return dropout((self.embedding @ self.embedding.T).sigmoid(), self.rate, key, stream)


class BrainOod(GradientMethod):
    """A shared GIN on the whole graph and on random subgraphs, and a reconstruction of FC."""

    name = "brainood"
    Hyperparameters = BrainOodHyperparameters

    def __init__(self, hyperparameters: BrainOodHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        deviation = s.hidden**-0.5 if s.soft_init else 1.0
        self.selector = FeatureSelector(n_rois, s.hidden, s.selector_dropout, deviation)
        self.encoder = VirtualGin(n_rois, s.hidden, s.dropout)
        self.extractor = make_extractor(s.hidden, s.extractor_hidden, s.extractor_dropout)
        virtual = s.high_pass == "sum"
        self.decoder = VirtualGin(s.hidden, s.hidden, s.dropout, virtual)
        self.head = nn.Linear(s.hidden, 2)

    def make_features(self, inputs: Features) -> Features:
        return listed_features(inputs["fc"], self.hyperparameters.density)

    def represent(self, features: Features) -> Tensor:
        """The pooled nodes of a pass with every edge weighed by its chance to be drawn."""
        edges = EdgeLists.of(features)
        return self.encode(features, edges.spread(self.chance(features)), None, 0)[0].mean(-2)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s, features, key = self.hyperparameters, batch.features, batch.key
        edges = EdgeLists.of(features)
        mask, looped = edges.mask, edges.spread(edges.present, 1.0)
        nodes, selection = self.encode(features, looped, key, 0, looped=True)
        scores = self.extractor(nodes, edges, mask, key, EXTRACTOR)
        # Each direction has its own noise.
        attention = drawn_attention(scores, key, ATTENTION)
        pooled = self.subgraphs(features, edges, attention.mean(-2), key)
        columns = torch.stack([1 - batch.label, batch.label], -1).to(pooled.dtype)
        present = edges.present[..., None, :]
        logs = {
            "classification": binary_cross_entropy(self.head(pooled), columns),
            "alignment": alignment(scores, edges, mask, s.absent_edges),
            "reconstruction": self.reconstruction(features, nodes, mask, selection, key),
            "entropy": row_entropy(selection),
        }
        loss = (
            logs["classification"]
            + s.lambda_alignment * logs["alignment"]
            + s.lambda_reconstruction * logs["reconstruction"]
            + s.lambda_entropy * logs["entropy"]
        )
        if s.lambda_information > 0:
            # The sampled attention enters, not its mean: a choice of the authors.
            logs["information"] = bernoulli_divergence(attention, float(phase), present)
            loss = loss + s.lambda_information * logs["information"]
        # Reconstruction is cheapest where nothing is selected.
        logs["selected"] = selection.mean()
        logs["attention"] = (attention * present).sum() / (2 * present.sum())
        return loss, logs

    @classmethod
    def phase(cls, hyperparameters: BrainOodHyperparameters, epoch: int) -> str:
        """The rate of the epoch, as text, where the loss asks for it."""
        asked = hyperparameters.lambda_information > 0
        return f"{hyperparameters.rate(epoch):.6g}" if asked else TRAIN

    def encode(
        self,
        features: Features,
        adjacency: Tensor,
        key: Tensor | None,
        number: int,
        looped: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Nodes (B, P, d) of pass ``number``, and its feature mask; all passes update norms.

        ``looped`` says that the adjacency has ones on its diagonal.
        """
        stream = PASSES + 10 * number
        selection = self.selector(key, stream)
        nodes = features["nodes"] * selection
        return self.encoder(nodes, adjacency, key, stream + 1, looped), selection

    def chance(self, features: Features) -> Tensor:
        """The chance of every edge to be drawn, (B, E), without any noise."""
        edges = EdgeLists.of(features)
        nodes, _ = self.encode(features, edges.mask, None, 0)
        return self.extractor(nodes, edges, edges.mask, None, EXTRACTOR).sigmoid().mean(-2)

    def subgraphs(
        self, features: Features, edges: EdgeLists, chance: Tensor, key: Tensor
    ) -> Tensor:
        """Pooled nodes (B, d), averaged over random subgraphs.

        One pass after the other: each has normalisation statistics of its own.
        """
        graphs = drawn_graphs(chance, edges, self.hyperparameters.rounds, key, MASKS)
        pooled = [
            self.encode(features, graph, key, number, looped=True)[0].mean(-2)
            for number, graph in enumerate(graphs, start=1)
        ]
        # The classifier is linear: the mean of its logits is the logit of the mean.
        return torch.stack(pooled).mean(0)

    def reconstruction(
        self, features: Features, nodes: Tensor, mask: Tensor, selection: Tensor, key: Tensor
    ) -> Tensor:
        """Mean squared error of selected FC off the diagonal, from the nodes of the first pass."""
        decoded = self.decoder(nodes, self.high_pass(mask), key, RECONSTRUCTION, looped=True)
        error = (decoded @ decoded.mT).tanh() - features["nodes"].tanh()
        # Subjects are summed first: they share the selection.
        error = without_diagonal(error.square().sum(0) * selection.square())
        return error.sum() / (len(nodes) * self.n_rois * (self.n_rois - 1))

    def high_pass(self, mask: Tensor) -> Tensor:
        """A node minus the mean of its neighbours, or minus their sum and itself.

        Every node has neighbours, because it selects its strongest edges.
        """
        mean = self.hyperparameters.high_pass == "mean"
        weight = -1 / mask.sum(-1, keepdim=True) if mean else -mask.new_ones(1, 1)
        return torch.addcmul(float(mean) * self._identity(mask), mask, weight)

    def _identity(self, like: Tensor) -> Tensor:
        return torch.eye(self.n_rois, dtype=like.dtype, device=like.device)


def row_entropy(selection: Tensor) -> Tensor:
    """Mean entropy of the distributions whose logits are the rows of the mask."""
    log_p = selection.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1).mean()
