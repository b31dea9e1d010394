"""FC-HGNN: Gu et al., FC-HGNN: a heterogeneous graph neural network, Information Fusion 2025.

Each subject's graph becomes a vector (stage 1), and the subjects of a population hear each other
(stage 2). Trained on all training subjects at once. Predictions are inductive: a subject hears
training subjects and nobody hears it, so it does not matter who else is evaluated.

What departs from the released code because that code is wrong: population edges run both ways
(there from lower to higher index only); the Chebyshev convolution sees the graph's own edges
(there those renumbered by the pooling); both pooling channels keep the same ROIs in the same order;
one softmax makes the assignment (there two). Population edges are FC neighbours, because the
published score of sex and site cuts an unseen site off; ``population_edges: phenotype`` has it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.cohorts.stores import Rois
from brio_core.connectivity import FISHER_Z
from brio_core.connectivity.graphs import subject_graph, upper_triangle
from brio_core.methods.fc_hgnn.brain import STREAMS, BrainEncoder, hemispheres, sides_are_known
from brio_core.methods.fc_hgnn.layers import TransformerConvolution, attended, silence
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod
from brio_core.methods.layers.environments import mean_over
from brio_core.methods.layers.norms import MaskedNorm
from brio_core.methods.stack import FoldStack
from brio_core.methods.training_scans import FeatureStore, TrainingScans, TrainView
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout

# Below this mean degree of the training graphs the threshold on FC gives way to a density.
FEWEST_EDGES = 2
# The row of a place without a subject; a stranger's is -1.
NOBODY = -2
# An edge whose deviation is below this, far less than a float32 resolves, does not vary.
NEGLIGIBLE = 1e-10


@dataclass(frozen=True)
class FcHgnnHyperparameters(GradientHyperparameters):
    """``threshold`` and ``phenotype_threshold`` are the paper's alpha and beta.

    ``density`` replaces the threshold where that leaves hardly an edge. ``kept`` and ``clusters``
    are the fractions of ROIs in the two channels of the pooling.
    """

    samplers: ClassVar[tuple[str, ...]] = ("everyone", "shuffled")
    # The threshold is one of Fisher z.
    kinds: ClassVar[tuple[str, ...]] = (FISHER_Z,)

    hidden: int
    units: int
    layers: int
    dropout: float
    threshold: float
    density: float
    kept: float
    clusters: float
    population_edges: Literal["nearest", "phenotype"]
    neighbours: int
    phenotype_threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("kept", "clusters"):
            if not 0 < getattr(self, key) <= 1:
                raise BrioError(f"{key} is {getattr(self, key)}, but must lie above 0 and up to 1")


class Population(nn.Module):
    """The training subjects of a fold, as those whom any subject may hear.

    Every subject has two kinds of senders: of its own sex, and of the other (pairs with an unknown
    sex count here). ``nearest``: the ``neighbours`` subjects with the highest cosine similarity of
    FC, standardised by training mean and deviation. ``phenotype``, as published: those whose score
    [same sex] + [same site] lies ``threshold`` deviations above the mean of all scores of the
    receiver; no prediction knows a site, so only training subjects share one. Nobody hears itself.
    """

    def __init__(self, rule: str, neighbours: int, threshold: float) -> None:
        super().__init__()
        self.rule, self.neighbours, self.threshold = rule, neighbours, threshold
        for name in ("row", "sex", "site", "scans", "mean", "scale"):
            self.register_buffer(name, torch.zeros(0), persistent=False)

    def fit(self, train: TrainView, width: int) -> None:
        """Keep the training subjects, with empty places up to ``width``."""

        def padded(values: Tensor, empty: float) -> Tensor:
            places = [0, 0] * (values.ndim - 1) + [0, width - len(values)]
            return functional.pad(values, places, value=empty)

        self.row = padded(train.row, NOBODY)
        self.sex = padded(_sex(train.covariates), -1)
        self.site = padded(train.site, -1)
        # In float64: neighbours must not depend on how products are rounded.
        edges = upper_triangle(train.fc[:]).double()
        self.mean, deviation = edges.mean(0), edges.std(0)
        varies = deviation > NEGLIGIBLE
        self.scale = varies / deviation.where(varies, 1)
        self.scans = padded(self._standardise(edges), 0.0)

    def _standardise(self, edges: Tensor) -> Tensor:
        return functional.normalize((edges - self.mean) * self.scale, dim=-1)

    def hear(self, inputs: Features) -> Features:
        """Senders ``heard`` (B, 2, W) of each subject, and its own ``place`` among them or -1."""
        own = inputs["row"][:, None] == self.row
        place = torch.where(own.any(-1), own.byte().argmax(-1), -1)
        others = (self.row != NOBODY) & ~own
        sex = _sex(inputs["covariates"])[:, None]
        same = (sex == self.sex) & (sex >= 0)
        kinds = torch.stack([others & same, others & ~same], -2)
        if self.rule == "nearest":
            heard = self._nearest(inputs["fc"], kinds)
        else:
            heard = kinds & self._alike(place, others, same)[:, None]
        return {"heard": heard, "place": place}

    def _nearest(self, fc: Tensor, kinds: Tensor) -> Tensor:
        similarity = self._standardise(upper_triangle(fc).double()) @ self.scans.T
        similarity = similarity[:, None].masked_fill(~kinds, float("-inf"))
        count = min(self.neighbours, kinds.shape[-1])
        return kinds & (similarity >= similarity.topk(count).values[..., -1:])

    def _alike(self, place: Tensor, others: Tensor, same_sex: Tensor) -> Tensor:
        site = torch.where(place >= 0, self.site[place.clamp_min(0)], -1)[:, None]
        same_site = (site == self.site) & (site >= 0)
        # As published, a subject's score with itself is 0 and counts in mean and deviation.
        score = (same_sex.double() + same_site.double()) * others
        present = (self.row != NOBODY).double()
        count = present.sum()
        centred = score - (score.sum(-1) / count)[:, None]
        deviation = ((centred.square() * present).sum(-1) / count).sqrt()[:, None]
        return others & (centred > self.threshold * deviation)


def _sex(covariates: Tensor) -> Tensor:
    """1 for male, 0 for female, -1 for unknown, (B,)."""
    sex = covariates[:, 1]
    return torch.where(sex.isnan(), -1, (sex > 0.5).long())


class PopulationNetwork(nn.Module):
    """Layers of attention to both kinds of senders, whose outputs are all concatenated."""

    def __init__(self, before: int, units: int, layers: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        widths = [before] + [units] * (layers - 1)
        self.kinds = nn.ModuleList(
            nn.ModuleList(TransformerConvolution(width, units) for _ in range(2))
            for width in widths
        )
        # The published start: mostly subjects of the same sex.
        self.mixture = nn.Parameter(torch.tensor([[0.8, 0.2]]).repeat(layers, 1))
        self.norms = nn.ModuleList(MaskedNorm(units) for _ in widths)

    def forward(
        self,
        hidden: Tensor,
        heard: Tensor,
        present: Tensor | None = None,
        memory: Tensor | None = None,
        key: Tensor | None = None,
        stream: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Representations (B, layers * units), and what was told, (layers, 2, 2, N, units).

        Senders are those who told ``memory``, or without it the receivers themselves. ``heard`` is
        (2, B, N). With a key, dropout uses ``layers`` streams from ``stream`` on.
        """
        outputs, told = [], []
        shares = self.mixture / self.mixture.sum(-1, keepdim=True)
        silent, hears = silence(heard)
        for layer, (kinds, norm) in enumerate(zip(self.kinds, self.norms)):
            hidden = dropout(hidden, self.rate, key, stream + layer)
            # One product of all layers of both kinds reads what is wide once.
            first = 0 if memory is None else 2
            parts = [part.weight for kind in kinds for part in kind.layers()[first:]]
            found = (hidden @ torch.cat(parts).T).unflatten(-1, (2, -1, norm.num_features))
            *words, asked, own = found.movedim((-3, -2), (1, 0))
            told.append(torch.stack(words, 1) if memory is None else memory[layer])
            queries = [one + kind.query.bias for one, kind in zip(asked, kinds)]
            same, other = map(attended, queries, own, told[-1], silent, hears)
            mixed = shares[layer, 0] * same + shares[layer, 1] * other
            hidden = functional.leaky_relu(norm(mixed, present))
            outputs.append(hidden)
        return torch.cat(outputs, -1), torch.stack(told)


class FcHgnn(GradientMethod):
    """Brain encoder, population network, linear head."""

    name = "fc-hgnn"
    Hyperparameters = FcHgnnHyperparameters
    needs = ("fc", "covariates", "row")
    features_are_shared = False
    needs_population = True

    def __init__(self, hyperparameters: FcHgnnHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s = hyperparameters
        self.brain = BrainEncoder(n_rois, s.hidden, s.units, s.kept, s.clusters, s.dropout)
        self.population = Population(s.population_edges, s.neighbours, s.phenotype_threshold)
        self.network = PopulationNetwork(self.brain.width, s.units, s.layers, s.dropout)
        self.head = nn.Linear(s.layers * s.units, 1)
        self.register_buffer("hemisphere", torch.zeros(n_rois, dtype=torch.int64))
        self.register_buffer("few_edges", torch.zeros((), dtype=torch.bool))
        # Keys and values that the training subjects tell in every layer, to either kind.
        self.register_buffer("memory", torch.zeros(s.layers, 2, 2, 0, s.units))

    @classmethod
    def notes(cls, rois: Rois, hyperparameters: Any = None) -> list[str]:
        if sides_are_known(rois):
            return []
        return [
            "The hemispheres of the regions are unknown, so the first half counts as left. Name an "
            "atlas, labels or an image under rois of the dataset."
        ]

    @classmethod
    def share(cls, scans: TrainingScans, hyperparameters: FcHgnnHyperparameters) -> list[Features]:
        """How many places the largest training set needs: stacked folds have equal shapes."""
        return [{"width": torch.tensor(scans.rows.shape[1])} for _ in scans.rows]

    def prepare(self, train: TrainView) -> None:
        width = int(train.shared.get("width", len(train.row)))
        self.population.fit(train, width)
        self.memory = self.memory.new_zeros(
            (*self.memory.shape[:3], width, self.hyperparameters.units)
        )
        groups = hemispheres(train.rois)
        self.hemisphere.copy_(groups)
        self.brain.sizes = tuple(torch.bincount(groups, minlength=3).tolist())
        degree = (train.fc[:].abs() > self.hyperparameters.threshold).sum(-1)
        self.few_edges.copy_(degree.double().mean() < FEWEST_EDGES)

    def make_features(self, inputs: Features) -> Features:
        """What the encoder reads of the subject's graph, and whom the subject hears."""
        graphs = self.brain.graphs(*self.ordered(inputs["fc"]))
        return {**graphs, **self.population.hear(inputs)}

    def ordered(self, fc: Tensor) -> tuple[Tensor, Tensor]:
        """FC and its edges, ROIs ordered by hemisphere."""
        strongest = subject_graph(fc, self.hyperparameters.density)
        edges = torch.where(self.few_edges, strongest, fc.abs() > self.hyperparameters.threshold)
        order = self.hemisphere.sort(stable=True).indices
        return tuple(matrix[:, order][:, :, order] for matrix in (fc, edges))

    def represent(self, features: Features) -> Tensor:
        embedded = self.brain(features)
        heard = features["heard"].movedim(-2, 0)
        return self.network(embedded, heard, memory=self.memory)[0]

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        # Stand-ins for subjects that a fold does not have count nowhere.
        present = batch.site >= 0
        represented = self._together(batch.features, present, batch.key)[0]
        logits = self.head(represented).squeeze(-1)
        risk = functional.binary_cross_entropy_with_logits(
            logits, batch.label.to(logits.dtype), reduction="none"
        )
        return mean_over(risk, present), {}

    def told(self, features: Features, present: Tensor) -> Tensor:
        """The memory that training subjects leave when they hear each other."""
        told = self._together(features, present, None)[1]
        return told * present[:, None]

    def _together(
        self, features: Features, present: Tensor, key: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        embedded = self.brain(features, key)
        heard = mutual(features["heard"], features["place"], present)
        return self.network(embedded, heard, present, key=key, stream=STREAMS)

    @classmethod
    def before_selection(cls, stack: FoldStack, features: FeatureStore, rows: Tensor) -> None:
        """Let the training subjects of all folds tell anew what they have come to know."""
        told = stack.call("told", features.gather(rows.clamp_min(0)), rows >= 0)
        stack.buffers["memory"].copy_(told)


def mutual(heard: Tensor, place: Tensor, present: Tensor) -> Tensor:
    """The symmetric graphs (2, B, B) among training subjects who hear (B, 2, W) others."""
    among = heard.movedim(-2, 0)[..., place]
    return (among | among.mT) & present
