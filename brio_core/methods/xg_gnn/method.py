"""XG-GNN: Qiu et al., Graph Neural Networks with Domain-Generalizable Explainability, MICCAI 2024.

A graph learnt from series weighs FC rows. Every step adapts the weights on some sites and asks
them to predict, and to explain alike, on the others (first-order MAML).

Released code departs from the stated method, and we from it: explanations of two sites are
compared (there, one with itself), values have a projection of their own (there, the keys'),
cross-entropy takes logits (there, sigmoids of them), and classes are contrasted on scans that are
not mixed up. Kept from the code: a region is multiplied by its own row sum of the graph, no ReLU
between convolutions, and its entropy as sparsity term. The stated message passing is an option
(``propagation: mean``): learnt graphs are uniform, so it gives all regions the same row of FC.
"""

from dataclasses import dataclass
from functools import partial
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

from brio_core.connectivity.fisher_z import standardise
from brio_core.methods.hyperparameters import EpisodeHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, margin, slopes
from brio_core.methods.layers.series import draw_blend, mirrored_window, mix, standardised
from brio_core.methods.training_scans import TrainView
from brio_core.methods.xg_gnn.layers import (
    Constructor,
    LinearConvolutions,
    Propagation,
    RegionLinear,
    SiteNorm,
    class_difference,
    disagreement,
    learnt_graphs,
    sparsity,
    variation_within,
)
from brio_core.system.errors import BrioError
from brio_core.system.randomness import dropout, fold_in

INNER, OUTER = "inner", "outer"
# Of the 13 training sites that the authors have, 6 are inner ones.
INNER_SHARE = 6 / 13
SLOPE = 0.2
# Moments of the inner Adam step are buffers, so they stay with the fold's state.
PREFIX = "inner_adam_"
_MEAN, _SQUARE, _STEPS = PREFIX + "mean", PREFIX + "square", PREFIX + "steps"
_BETAS, _EPS = (0.9, 0.999), 1e-8


@dataclass(frozen=True)
class XgGnnHyperparameters(EpisodeHyperparameters):
    """``longest`` is the number of frames that are read; a fold with shorter scans reads fewer.

    ``propagation`` says what regions hear over the learnt graph, see :class:`Propagation`.
    ``inner_*`` belong to the Adam step that adapts the weights; the others to the outer loop.
    """

    longest: int
    propagation: Literal["released", "mean", "mean+self"]
    dropout: float
    mixup: bool
    inner_learning_rate: float
    inner_weight_decay: float
    classification_weight: float
    sparsity_weight: float
    stability_weight: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.longest < XgGnn.min_frames:
            raise BrioError(f"longest is {self.longest}, but must be {XgGnn.min_frames} or more")
        if self.sites_per_batch < 2:
            raise BrioError("sites_per_batch is below 2, but an episode has inner and outer sites")

    def inner_rows(self, rows: int) -> int:
        """How many rows of a batch belong to its inner sites, which come first."""
        sites = rows // self.subjects_per_site
        return max(1, round(INNER_SHARE * sites)) * self.subjects_per_site


def perceptron(*widths: int, linear: type[nn.Linear] = nn.Linear) -> nn.Sequential:
    """Linear layers, each followed by LeakyReLU."""
    layers = [(linear(*pair), nn.LeakyReLU(SLOPE)) for pair in pairwise(widths)]
    return nn.Sequential(*chain.from_iterable(layers))


class XgGnn(GradientMethod):
    """Temporal encoder, network constructor and DiagNet, trained in episodes."""

    name = "xg-gnn"
    Hyperparameters = XgGnnHyperparameters
    needs = ("fc", "bold", "frames")
    # Two places are left after the convolutions, one per bin.
    min_frames = 34

    def __init__(self, hyperparameters: XgGnnHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        if n_sites < 2:
            raise BrioError("xg-gnn adapts on some training sites for others: it needs two or more")
        # The frames that are read, as many as the fold's shortest scan has: equal in a stack.
        self.register_buffer("frame", torch.arange(self.min_frames))
        self.convolutions = LinearConvolutions((32, 32, 16), (4, 8, 8), stride=2, bins=2)
        self.token = nn.Sequential(perceptron(32, 32, linear=RegionLinear), RegionLinear(32, 8))
        self.constructor = Constructor(8, heads=4)
        kind = hyperparameters.propagation
        # Where regions hear the same, most units stay on one side of the kink: a first bias would
        # be a shift that the norm takes away again.
        self.propagations = nn.ModuleList(
            Propagation(n_rois, width, kind, bias=number > 0 or kind != "mean")
            for number, width in enumerate((n_rois, n_rois, 64))
        )
        self.layers = nn.ModuleList(
            [
                nn.Sequential(nn.LeakyReLU(SLOPE), nn.Linear(n_rois, n_rois, bias=False)),
                nn.LeakyReLU(SLOPE),
                nn.Sequential(nn.LeakyReLU(SLOPE), perceptron(64, 8, linear=RegionLinear)),
            ]
        )
        # The first two over features; the last has the ROI as channel.
        self.norms = nn.ModuleList(SiteNorm(n_rois) for _ in range(3))
        self.readout = perceptron(8 * n_rois, 256, 32)
        self.head = nn.Linear(32, 2)
        add_moments(self)

    @classmethod
    def scan_length(cls, hyperparameters: XgGnnHyperparameters, frames: np.ndarray) -> int:
        """Frames that are read of every scan: the shortest training scan has so many."""
        return int(min(hyperparameters.longest, np.min(frames)))

    def prepare(self, train: TrainView) -> None:
        length = self.scan_length(self.hyperparameters, train.frames.cpu().numpy())
        self.frame = torch.arange(length, device=train.label.device)

    def make_features(self, inputs: Features) -> Features:
        """The first frames (B, P, T), standardised over those that a scan has, and FC."""
        length = self.frame.shape[-1]
        # A cohort has no scan below the minimum; one that is cut short on purpose is mirrored.
        frames = inputs["frames"].clamp(self.min_frames, length)
        start = torch.zeros_like(frames)
        bold = mirrored_window(inputs["bold"], inputs["frames"], start, length)
        inside = (self.frame < frames[:, None])[..., None]
        series = standardise(bold.where(inside, torch.nan))
        return {"series": series.mT.contiguous(), "frames": frames, "fc": inputs["fc"]}

    def represent(self, features: Features) -> Tensor:
        return self._encode({name: value[None] for name, value in features.items()}, None)[0][0]

    @classmethod
    def phase(cls, hyperparameters: XgGnnHyperparameters, epoch: int) -> str:
        return OUTER

    @classmethod
    def gradient(
        cls,
        hyperparameters: XgGnnHyperparameters,
        loss: Any,
        learnt: dict[str, Tensor],
        buffers: dict[str, Tensor],
        batch: Batch,
    ) -> Any:
        """The gradient of the outer sites' loss at weights that the inner sites have adapted.

        Running statistics keep the inner pass, whose weights are those that stay.
        """
        count = hyperparameters.inner_rows(batch.label.shape[1])
        inner, outer = (_rows(batch, part) for part in (slice(count), slice(count, None)))
        risk, _ = loss(learnt, buffers, inner, phase=INNER)
        adapt = partial(
            adam_step,
            rate=hyperparameters.inner_learning_rate,
            decay=hyperparameters.inner_weight_decay,
        )
        weights = {name: value.detach() for name, value in learnt.items()}
        adapted = vmap(adapt)(weights, slopes(risk, learnt), buffers)
        adapted = {name: value.requires_grad_() for name, value in adapted.items()}
        lost = {
            name: value if name.startswith(PREFIX) else value.clone()
            for name, value in buffers.items()
        }
        value, logs = loss(adapted, lost, outer, phase=OUTER)
        return slopes(value, adapted), (value, {**logs, "inner_loss": risk})

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of inner or of outer sites; rows are ordered by site."""
        s = self.hyperparameters
        sites = (len(batch.label) // s.subjects_per_site, s.subjects_per_site)
        features = {name: value.unflatten(0, sites) for name, value in batch.features.items()}
        label = batch.label.unflatten(0, sites).to(features["fc"].dtype)
        key = fold_in(batch.key, int(phase == OUTER))
        target = label
        if phase == INNER and s.mixup:
            # Every site is blended within itself.
            keys = fold_in(key, torch.arange(sites[0], device=key.device))
            blends = vmap(lambda key: draw_blend(key, sites[1]))(keys)
            mixed = {name: vmap(mix)(features[name], blends) for name in ("series", "fc")}
            features, target = {**features, **mixed}, vmap(mix)(label, blends)
        represented, factor = self._encode(features, key)
        # Cross-entropy of two logits is that of their difference.
        risk = functional.binary_cross_entropy_with_logits(
            margin(self.head(represented)), target, reduction="none"
        ).mean(-1)
        loss = s.classification_weight * risk.sum()
        if phase == INNER:
            return loss, {}
        graphs = learnt_graphs(factor)
        difference, usable = class_difference(graphs, label)
        sparse = (sparsity(difference) * usable).sum()
        pairs = (usable[:, None] & usable).triu(1)
        apart = (disagreement(difference) * pairs).sum()
        loss = loss + s.sparsity_weight * sparse + s.stability_weight * apart
        return loss, {
            "risk": risk.mean(),
            "sparsity": sparse,
            "disagreement": apart,
            # Over the batch instead, differences between scans would hide a uniform graph.
            "graph_variation": variation_within(graphs.detach()),
        }

    def _encode(self, features: Features, key: Tensor | None) -> tuple[Tensor, Tensor]:
        """Representations (S, n, 32) of S sites, and their learnt graphs' factors."""
        # Like the removal of a global signal, frame by frame.
        series = standardised(features["series"], -2)
        pooled = self.convolutions(series, features["frames"])
        factor = self.constructor(self.token(pooled.flatten(-2)).softmax(-1))
        hidden = features["fc"]
        for number, (propagate, layer) in enumerate(zip(self.propagations, self.layers)):
            hidden = layer(propagate(hidden, factor))
            if number < 2:
                hidden = self.norms[number](hidden)
        hidden = dropout(hidden, self.hyperparameters.dropout, key, stream=2)
        hidden = self.norms[-1](hidden.mT).mT
        return self.readout(hidden.flatten(-2)), factor


def _rows(batch: Batch, rows: slice) -> Batch:
    return Batch(
        {name: value[:, rows] for name, value in batch.features.items()},
        batch.label[:, rows],
        batch.site[:, rows],
        batch.key,
    )


def add_moments(module: nn.Module) -> None:
    """Give a module the moments of all its parameters, as one vector each."""
    count = sum(parameter.numel() for parameter in module.parameters())
    module.register_buffer(_MEAN, torch.zeros(count))
    module.register_buffer(_SQUARE, torch.zeros(count))
    module.register_buffer(_STEPS, torch.zeros(()))


def adam_step(
    weights: dict[str, Tensor],
    gradients: dict[str, Tensor],
    buffers: dict[str, Tensor],
    rate: float,
    decay: float,
) -> dict[str, Tensor]:
    """Weights after one step of Adam (weight decay as part of the gradient); moments change."""
    flat = torch.cat([weight.flatten() for weight in weights.values()])
    slope = torch.cat([gradients[name].flatten() for name in weights]) + decay * flat
    mean, square, steps = buffers[_MEAN], buffers[_SQUARE], buffers[_STEPS]
    mean.mul_(_BETAS[0]).add_((1 - _BETAS[0]) * slope)
    square.mul_(_BETAS[1]).add_((1 - _BETAS[1]) * slope.square())
    steps.add_(1)
    first, second = mean / (1 - _BETAS[0] ** steps), square / (1 - _BETAS[1] ** steps)
    moved = flat - rate * first / (second.sqrt() + _EPS)
    parts = moved.split([weight.numel() for weight in weights.values()])
    # Copies begin at addresses that fast matrix products like.
    return {name: part.view_as(weights[name]).clone() for name, part in zip(weights, parts)}
