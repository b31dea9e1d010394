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
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.cohorts.stores import Rois
from brio_core.connectivity import FISHER_Z
from brio_core.connectivity.graphs import subject_graph
from brio_core.methods.fc_hgnn.brain import STREAMS, BrainEncoder, hemispheres, sides_are_known
from brio_core.methods.fc_hgnn.population import EDGE_RULES, Population, PopulationNetwork
from brio_core.methods.hyperparameters import GradientHyperparameters, check_choice
from brio_core.methods.interface import Batch, Features, GradientMethod
from brio_core.methods.layers.environments import mean_over
from brio_core.methods.stack import FoldStack
from brio_core.methods.train_view import TrainView
from brio_core.methods.training_scans import FeatureStore, TrainingScans
from brio_core.system.errors import BrioError

# Below this mean degree of the training graphs the threshold on FC gives way to a density.
FEWEST_EDGES = 2


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
    population_edges: str
    neighbours: int
    phenotype_threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("population_edges", self.population_edges, EDGE_RULES)
        for key in ("kept", "clusters"):
            if not 0 < getattr(self, key) <= 1:
                raise BrioError(f"{key} is {getattr(self, key)}, but must lie above 0 and up to 1")
        if self.neighbours < 1:
            raise BrioError(f"neighbours is {self.neighbours}, but must be at least 1")


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
        """FC and its edges, ROIs ordered by hemisphere, and whom the subject hears."""
        fc = inputs["fc"]
        strongest = subject_graph(fc, self.hyperparameters.density)
        edges = torch.where(self.few_edges, strongest, fc.abs() > self.hyperparameters.threshold)
        order = self.hemisphere.sort(stable=True).indices
        ordered = [matrix[:, order][:, :, order] for matrix in (fc, edges)]
        return {**dict(zip(("fc", "edges"), ordered)), **self.population.hear(inputs)}

    def represent(self, features: Features) -> Tensor:
        embedded = self.brain(features["fc"], features["edges"])
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
        embedded = self.brain(features["fc"], features["edges"], key)
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
