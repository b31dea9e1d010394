"""GSAT: Miao et al., Interpretable and Generalizable Graph Learning via Stochastic Attention, 2022.

A GIN reads the graph, a small network scores its edges, random attention is drawn, and the same
GIN reads the graph again with attention on its messages. A divergence from Bernoulli(r) limits
what attention may tell.

Departures: attention is averaged over the two directions of an edge, as the authors mean it: their
code of 2022, and the benchmarks that copied it, average each direction with itself. Mean readout.
"""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.methods.layers.convolutions import DenseGin
from brio_core.methods.layers.edge_lists import EdgeLists, listed_features
from brio_core.methods.layers.edge_masks import bernoulli_divergence, drawn_attention
from brio_core.methods.layers.extractors import make_extractor
from brio_core.methods.layers.perceptrons import relu_dropout
from brio_core.system.errors import BrioError

FIRST_RATE, DROP = 0.9, 0.1
# Streams of random numbers; each pass of the GIN takes one per layer after its own.
EXTRACTOR, ATTENTION, FIRST_PASS, SECOND_PASS = 0, 1, 100, 200


@dataclass(frozen=True)
class GsatHyperparameters(GradientHyperparameters):
    """``rate`` r starts at 0.9 and falls by 0.1 until it is ``final_rate``.

    The last fall comes after ``decay_share`` of all epochs. Earlier checkpoints are close to plain
    training and not eligible: ``first_epoch`` is raised to the first epoch with the final rate.
    ``extractor_hidden`` are the widths of the edge network's one or two hidden layers.
    """

    hidden: int
    layers: int
    dropout: float
    extractor_hidden: tuple[int, ...]
    extractor_dropout: float
    beta: float
    final_rate: float
    decay_share: float
    density: float
    edge_weight: Literal["binary", "abs"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.final_rate <= FIRST_RATE:
            raise BrioError(f"final_rate is {self.final_rate}, but must be in (0, {FIRST_RATE}]")
        reached = next(
            (e for e in range(1, self.epochs) if self.rate(e) - self.final_rate < 1e-6),
            self.epochs,
        )
        object.__setattr__(self, "first_epoch", max(self.first_epoch, reached))

    def rate(self, epoch: int) -> float:
        """r in an epoch (from 1)."""
        drops = max(1, round((FIRST_RATE - self.final_rate) / DROP))
        # Safe against products such as 59.99999999999999.
        decay = max(1, int(self.decay_share * self.epochs / drops + 1e-9))
        return max(self.final_rate, FIRST_RATE - DROP * ((epoch - 1) // decay))


class Gsat(GradientMethod):
    """Two passes of one GIN, the second with stochastic attention on its edges."""

    name = "gsat"
    Hyperparameters = GsatHyperparameters

    def __init__(self, hyperparameters: GsatHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        self.enter = nn.Linear(n_rois, s.hidden)
        self.convolutions = nn.ModuleList(
            DenseGin(s.hidden, s.hidden, learn_epsilon=False, bias=True) for _ in range(s.layers)
        )
        self.extractor = make_extractor(s.hidden, s.extractor_hidden, s.extractor_dropout)
        self.head = nn.Linear(s.hidden, 1)

    def make_features(self, inputs: Features) -> Features:
        return listed_features(inputs["fc"], self.hyperparameters.density)

    def represent(self, features: Features) -> Tensor:
        """The pooled nodes of the second pass."""
        edges, mask = _edges(features)
        entered = self.enter(features["nodes"])
        attention = self.edge_logits(entered, features, edges, mask, None).sigmoid()
        return self.nodes(entered, self.attended(features, edges, attention), None, 0).mean(-2)

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        features = batch.features
        edges, mask = _edges(features)
        entered = self.enter(features["nodes"])
        scores = self.edge_logits(entered, features, edges, mask, batch.key)
        # Each direction has its own noise.
        attention = drawn_attention(scores, batch.key, ATTENTION)
        adjacency = self.attended(features, edges, attention)
        pooled = self.nodes(entered, adjacency, batch.key, SECOND_PASS).mean(-2)
        logits = self.head(pooled).squeeze(-1)
        classification = binary_cross_entropy(logits, batch.label)
        present = edges.present[..., None, :]
        # The sampled attention enters the divergence, not its mean: a choice of the authors.
        information = bernoulli_divergence(attention, float(phase), present)
        logs = {
            "classification": classification,
            "information": information,
            "attention": (attention * present).sum() / (2 * present.sum()),
        }
        return classification + self.hyperparameters.beta * information, logs

    @classmethod
    def phase(cls, hyperparameters: GsatHyperparameters, epoch: int) -> str:
        """The rate of the epoch, as text: a phase for each value it takes."""
        return f"{hyperparameters.rate(epoch):.6g}"

    def edge_logits(
        self,
        entered: Tensor,
        features: Features,
        edges: EdgeLists,
        mask: Tensor,
        key: Tensor | None,
    ) -> Tensor:
        """Logits of both directions of every edge (B, 2, E), from a pass without attention."""
        nodes = self.nodes(entered, self.weights(features, mask), key, FIRST_PASS)
        return self.extractor(nodes, edges, mask, key, EXTRACTOR)

    def attended(self, features: Features, edges: EdgeLists, attention: Tensor) -> Tensor:
        """Edge weights times the mean attention of the two directions, (B, P, P)."""
        return self.weights(features, edges.spread(attention.mean(-2)))

    def weights(self, features: Features, mask: Tensor) -> Tensor:
        """What messages weigh where the graph's ones and zeros, or attention, are the mask."""
        binary = self.hyperparameters.edge_weight == "binary"
        return mask if binary else features["nodes"].abs() * mask

    def nodes(self, hidden: Tensor, adjacency: Tensor, key: Tensor | None, stream: int) -> Tensor:
        """One pass of the GIN, (B, P, d). Both passes update the running statistics."""
        rate = self.hyperparameters.dropout
        for layer, convolve in enumerate(self.convolutions):
            hidden = convolve(hidden, adjacency)
            hidden = relu_dropout(hidden, convolve.second.bias, rate, key, stream + layer)
        return hidden


def _edges(features: Features) -> tuple[EdgeLists, Tensor]:
    edges = EdgeLists.of(features)
    return edges, edges.mask
