"""l2 logistic regression on Fisher-z FC: what every method has to be compared with.

Read in part, it tells how much of FC can reach a network like BRIO: the edges of the propagation
support alone, or the three numbers per ROI that BRIO's nodes begin with.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from brio_core.connectivity import KINDS
from brio_core.connectivity.graphs import (
    edge_places,
    node_descriptor,
    support_of_edges,
    upper_triangle,
)
from brio_core.methods.hyperparameters import check_choice
from brio_core.methods.linear.method import (
    LogisticHyperparameters,
    StandardisedEdges,
    check_sites,
)
from brio_core.methods.train_view import TrainView

EDGES, SUPPORT, DESCRIPTORS = "edges", "support", "descriptors"


@dataclass(frozen=True)
class LinearCorrelationHyperparameters(LogisticHyperparameters):
    """``reads``: all ``edges``, those on the ``support`` S, or BRIO's node ``descriptors`` on S.

    ``density`` is that of the support, which the fold's training subjects give. ``selection`` and
    ``centre`` are as :func:`check_sites` says.
    """

    kinds: ClassVar[tuple[str, ...]] = KINDS

    reads: str
    density: float
    selection: str
    centre: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("reads", self.reads, (EDGES, SUPPORT, DESCRIPTORS))
        check_sites(self)


class LinearCorrelation(StandardisedEdges):
    """Standardised upper-triangle edges, or what is read of them, and one weight for each."""

    name = "linear-correlation"
    Hyperparameters = LinearCorrelationHyperparameters

    def __init__(
        self, hyperparameters: LinearCorrelationHyperparameters, n_rois: int, n_sites: int
    ) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        if hyperparameters.reads != EDGES:
            self.register_buffer("support", torch.zeros(n_rois, n_rois, dtype=torch.bool))

    @staticmethod
    def n_read(hyperparameters: LinearCorrelationHyperparameters, n_rois: int) -> int:
        if hyperparameters.reads == DESCRIPTORS:
            return 3 * n_rois
        return StandardisedEdges.n_read(hyperparameters, n_rois)

    def prepare(self, train: TrainView) -> None:
        if self.hyperparameters.reads != EDGES:
            sites = (self._edges(train, train.site == one) for one in train.site.unique())
            self.support.copy_(support_of_edges(sites, self.n_rois, self.hyperparameters.density))
        super().prepare(train)

    def read(self, edges: Tensor) -> Tensor:
        if self.hyperparameters.reads == SUPPORT:
            # An edge outside is constant, so that it gets no weight.
            return edges * upper_triangle(self.support)
        if self.hyperparameters.reads == DESCRIPTORS:
            fc = edges[..., edge_places(self.n_rois, edges.device)]
            return node_descriptor(fc, self.support).flatten(-2)
        return edges

    def _edges(self, train: TrainView, subjects: Tensor) -> Tensor:
        """Edges of some training subjects; their features where the folds share them."""
        if train.features is None:
            return self.features({"fc": train.fc[subjects]})["edges"]
        return train.features["edges"][subjects]
