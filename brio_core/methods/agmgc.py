"""AGMGC, reimplemented: graphs learnt by data beside correlation graphs.

AGMGC (Noman et al., MICCAI 2025) has no code or full text that we could read. Its abstract names a
learner of graphs, spline convolutions for local patterns, convolutions over several graphs, and a
contrastive loss that aligns what is learnt with priors. This is a design of ours after that
abstract, and its results are no reproduction.

ROI features are projected FC rows. A learner turns them into a second graph. A local branch runs
spline convolutions on the correlation graph, a global branch convolves over both graphs, and a
contrastive loss pulls the two graphs' views of a subject together.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.connectivity.graphs import (
    neighbours_per_roi,
    normalised_adjacency,
    subject_graph,
    symmetric_top,
)
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import (
    Batch,
    Features,
    GradientMethod,
    binary_cross_entropy,
    margin,
)
from brio_core.methods.layers.perceptrons import row_linear
from brio_core.methods.training_scans import TrainView
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout


def hat_basis(coordinates: Tensor, points: int) -> Tensor:
    """``B_k(e) = max(0, 1 - |(m - 1) e - k|)`` for m control points, (...) to (..., m)."""
    place = torch.arange(points, dtype=coordinates.dtype, device=coordinates.device)
    return (1 - ((points - 1) * coordinates[..., None] - place).abs()).clamp_min(0)


def product_basis(coordinates: Tensor, points: int) -> Tensor:
    """Products of the bases of D coordinates, (..., D) to (..., m^D)."""
    basis, *others = hat_basis(coordinates, points).unbind(-2)
    for other in others:
        basis = (basis[..., :, None] * other[..., None, :]).flatten(-2)
    return basis


def spline_operator(basis: Tensor, mask: Tensor) -> Tensor:
    """``B_k(e_uv) / deg_u`` on the edges of ``mask`` (..., P, P), as (..., P, m, P).

    ``basis`` (..., P, P, m) has the values of the m basis functions.
    """
    mean = mask.to(basis.dtype) / mask.sum(-1, keepdim=True).clamp_min(1)
    return (mean[..., None] * basis).mT.contiguous()


class SplineConvolution(nn.Module):
    """``mean_v sum_k B_k(e_uv) Theta_k h_v + Theta_root h_u + b``."""

    def __init__(self, before: int, after: int, points: int) -> None:
        super().__init__()
        self.points = points
        # The m matrices side by side.
        self.thetas = nn.Linear(points * before, after, bias=False)
        self.root = nn.Linear(before, after)

    def forward(self, hidden: Tensor, operator: Tensor) -> Tensor:
        """Nodes (B, P, d) and what :func:`spline_operator` made of the graphs."""
        # One product for all control points, in an order that needs no copy afterwards.
        heard = operator.flatten(-3, -2) @ hidden
        heard = heard.unflatten(-2, (-1, self.points)).flatten(-2)
        heard = row_linear(heard, self.thetas.weight)
        return heard + row_linear(hidden, self.root.weight) + self.root.bias


class MultiGraphConvolution(nn.Module):
    """``GELU(sum_g a_g A_g H W_g + H W_0 + b)`` with ``a`` a softmax of learnt numbers."""

    def __init__(self, before: int, after: int, graphs: int) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.zeros(graphs))
        self.weights = nn.ModuleList(nn.Linear(before, after, bias=False) for _ in range(graphs))
        self.own = nn.Linear(before, after)

    def forward(self, hidden: Tensor, operators: Sequence[Tensor], views: bool) -> Tensor:
        """Nodes (B, P, V, d) under operators (B, P, P) to (B, P, V, d).

        V counts views of the graphs: the mixture of all, and with ``views`` also each of them
        alone. One view that comes in is the input of all.
        """
        shares, bias = self.mixing.softmax(-1), self.own.bias
        own, heard = row_linear(hidden, self.own.weight), []
        for operator, weight in zip(operators, self.weights):
            # Views stand side by side, so that an operator is read once for all of them.
            sent = row_linear(hidden, weight.weight)
            heard.append((operator @ sent.flatten(-2)).view_as(sent))
        if len(heard) == 2 and kernels.usable(own, "graph_views"):
            from brio_core.kernels.graph_views import GraphViews

            return GraphViews.apply(own, *heard, shares, bias, 3 if views else 1)
        shares = shares[None]
        if views:
            alone = torch.eye(len(operators), dtype=shares.dtype, device=shares.device)
            shares = torch.cat([shares, alone])
        total = own + bias
        for number, part in enumerate(heard):
            total = total + shares[:, number, None] * part
        return functional.gelu(total)


@dataclass(frozen=True)
class AgmgcHyperparameters(GradientHyperparameters):
    """Sizes of the network, the rule for both graphs, and the weights of the losses.

    ``coordinates`` of an edge on the splines are its ``correlation``, or the three ``offsets``
    between the centroids of its ROIs; ``control_points`` is their number per coordinate.
    """

    hidden: int
    learner_dim: int
    layers: int
    coordinates: Literal["correlation", "offsets"]
    control_points: int
    projection_dim: int
    dropout: float
    density: float
    temperature: float
    lambda_contrast: float
    lambda_sparsity: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.control_points < 2:
            raise BrioError(
                f"agmgc: control_points is {self.control_points}, but a spline needs at least 2"
            )


class Encoded(NamedTuple):
    """Representations (B, d), the learnt graphs (B, P, P), and the global branch's views.

    ``views`` (B, P, V, d): both graphs, and in training also correlations alone and learnt alone.
    """

    represented: Tensor
    learnt: Tensor
    views: Tensor


class LearnerGraph(nn.Module):
    """``ReLU(tanh((Q K^T + K Q^T) / (2 sqrt(d))))``, the strongest of every row, symmetric."""

    def __init__(self, hidden: int, width: int, density: float) -> None:
        super().__init__()
        self.density = density
        self.query = nn.Linear(hidden, width, bias=False)
        self.key = nn.Linear(hidden, width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Non-negative edge weights (B, P, P) with an empty diagonal."""
        query, key = (row_linear(hidden, part.weight) for part in (self.query, self.key))
        scores = query / (2 * query.shape[-1] ** 0.5) @ key.mT
        if kernels.usable(scores, "learnt_graph"):
            from brio_core.kernels.learnt_graph import LearntGraph

            return LearntGraph.apply(scores, neighbours_per_roi(scores.shape[-1], self.density))
        strength = (scores + scores.mT).tanh().relu()
        # Which edges are kept is not differentiated; the weights of those that are kept are.
        return strength * symmetric_top(strength.detach(), self.density)


class Agmgc(GradientMethod):
    """Stem, graph learner, local and global branch, mean and maximum over ROIs, two logits."""

    name = "agmgc"
    Hyperparameters = AgmgcHyperparameters

    def __init__(self, hyperparameters: AgmgcHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        s, hidden = hyperparameters, hyperparameters.hidden
        self.stem = nn.Sequential(nn.Linear(n_rois, hidden), nn.LayerNorm(hidden), nn.GELU())
        self.learner = LearnerGraph(hidden, s.learner_dim, s.density)
        points = s.control_points
        if s.coordinates == "offsets":
            points = points**3
            self.register_buffer("places", torch.zeros(n_rois, 3))
        self.splines = nn.ModuleList(
            SplineConvolution(hidden, hidden, points) for _ in range(s.layers)
        )
        self.multigraphs = nn.ModuleList(
            MultiGraphConvolution(hidden, hidden, graphs=2) for _ in range(s.layers)
        )
        self.fuse = nn.Linear(2 * hidden, hidden)
        self.readout = nn.Linear(2 * hidden, hidden)
        self.head = nn.Linear(hidden, 2)
        self.projector = nn.Sequential(
            nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, s.projection_dim)
        )

    def prepare(self, train: TrainView) -> None:
        """Where the ROIs are, in units of twice the longest way along any axis."""
        if self.hyperparameters.coordinates == "correlation":
            return
        centroids = torch.as_tensor(train.rois.centroids, device=self.places.device)
        if not centroids.isfinite().all():
            raise BrioError(
                "agmgc: coordinates is 'offsets', but the centroids of the ROIs are unknown; name "
                "them in the atlas of the dataset or choose 'correlation'"
            )
        longest = (centroids.amax(0) - centroids.amin(0)).amax()
        self.places.copy_(centroids / (2 * longest))

    def make_features(self, inputs: Features) -> Features:
        """FC rows as node features, the correlation graph, and its edges on the splines."""
        fc = inputs["fc"]
        mask = subject_graph(fc, self.hyperparameters.density)
        return {
            "nodes": fc,
            "correlations": normalised_adjacency(fc.abs() * mask),
            "splines": spline_operator(self.basis(fc), mask),
        }

    def basis(self, fc: Tensor) -> Tensor:
        """The splines' basis functions at all pairs of ROIs, (..., P, P, m)."""
        points = self.hyperparameters.control_points
        if self.hyperparameters.coordinates == "correlation":
            # Splines know [0, 1] only, hence correlations and not Fisher z.
            return hat_basis((fc.tanh() + 1) / 2, points)
        offsets = self.places[None, :] - self.places[:, None]
        return product_basis((offsets + 0.5).clamp(0, 1), points)

    def represent(self, features: Features) -> Tensor:
        return self.encode(features, views=False).represented

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.hyperparameters
        encoded = self.encode(batch.features, views=True)
        represented = dropout(encoded.represented, s.dropout, batch.key)
        risk = binary_cross_entropy(margin(self.head(represented)), batch.label)
        contrast = self.contrast(encoded.views)
        weight = encoded.learnt.mean()
        kept = encoded.learnt > 0
        common = (kept & (batch.features["correlations"] > 0)).sum() / kept.sum().clamp_min(1)
        # Where the learnt graph repeats the correlation graph, nothing was learnt.
        logs = {"risk": risk, "contrast": contrast, "learnt_weight": weight, "overlap": common}
        return risk + s.lambda_contrast * contrast + s.lambda_sparsity * weight, logs

    def encode(self, features: Features, views: bool) -> Encoded:
        """Both branches from the stem on; ``views`` asks for those of the contrastive loss."""
        hidden = self.stem(features["nodes"])
        learnt = self.learner(hidden)
        operators = (features["correlations"], normalised_adjacency(learnt))
        near, far = hidden, hidden[..., None, :]
        for spline, multigraph in zip(self.splines, self.multigraphs):
            near = functional.elu(spline(near, features["splines"]))
            far = multigraph(far, operators, views)
        fused = self.fuse(torch.cat([near, far[..., 0, :]], -1))
        pooled = torch.cat([fused.mean(-2), fused.amax(-2)], -1)
        return Encoded(self.readout(pooled).relu(), learnt, far)

    def contrast(self, views: Tensor) -> Tensor:
        """NT-Xent between the views of either graph alone, averaged over ROIs and projected."""
        projected = functional.normalize(self.projector(views.mean(-3)[..., 1:, :]), dim=-1)
        return nt_xent(projected[..., 0, :], projected[..., 1, :], self.hyperparameters.temperature)


def nt_xent(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """NT-Xent (Chen et al., 2020) of two unit-length views (B, d) of the same subjects.

    Each of the 2B views should find its partner among the 2B - 1 others.
    """
    views = torch.cat([one, other])
    similarity = views @ views.T / temperature
    oneself = torch.eye(len(views), dtype=torch.bool, device=views.device)
    others = similarity.masked_fill(oneself, float("-inf")).logsumexp(-1)
    # The pairing is symmetric: the same B numbers serve both directions.
    return others.mean() - similarity.diagonal(len(one)).mean()
