"""DisC: Fan et al., Debiasing Graph Neural Networks via Disentangled Causal Substructure, 2022.

A masker splits every graph into a causal and a bias part (masks c and 1 - c), two encoders read
one part each, and two heads read both representations. The bias branch learns what is easy first;
the causal branch counts by how much the bias branch fails. In the second half of training bias
representations are swapped between subjects.

Relative difficulty is one number per batch, as in the authors' GCN and GIN. Their paper means one
per subject (``weight: sample``): once the bias branch has learnt all training subjects by heart,
the few that it still misses get all the weight, and training collapses.

Departures: edge masks are averaged over both directions. One optimiser: the authors' two share no
parameters and act as one.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core import kernels
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, margin
from brio_core.methods.layers.convolutions import DenseGcn
from brio_core.methods.layers.edge_hidden import edge_hidden
from brio_core.methods.layers.edge_lists import EdgeLists, listed_features
from brio_core.methods.layers.norms import (
    MaskedNorm,
    NodeNorm,
    batch_normed_sides,
    norm_relu,
    remember,
)
from brio_core.methods.layers.perceptrons import row_linear
from brio_core.system.randomness import uniform

APART, SWAPPED = "apart", "swapped"


@dataclass(frozen=True)
class DiscHyperparameters(GradientHyperparameters):
    """``swap_share`` is the share of all epochs before bias representations are swapped."""

    hidden: int
    layers: int
    density: float
    node_mask: bool
    weight: Literal["sample", "batch"]
    exponent: float
    lambda_disentangle: float
    lambda_swap: float
    swap_share: float

    @property
    def epochs_apart(self) -> int:
        # The authors count epochs from 0 and swap above the share: first in the 102nd of 200.
        return int(self.swap_share * self.epochs) + 1

    @property
    def patient_until(self) -> int:
        # The authors never stop early; a fold that did before swapping would not be DisC.
        return max(super().patient_until, self.epochs_apart)


class MeanGcn(nn.Module):
    """Linear; then mean over neighbours - Linear - BatchNorm - ReLU, plus what came in."""

    def __init__(self, n_rois: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.enter = nn.Linear(n_rois, hidden)
        self.convolutions = nn.ModuleList(
            DenseGcn(hidden, hidden, bias=False) for _ in range(layers)
        )
        self.norms = nn.ModuleList(NodeNorm(hidden) for _ in range(layers))

    def forward(self, nodes: Tensor, operator: Tensor, scale: Tensor | None = None) -> Tensor:
        """Nodes (B, P, d); ``scale`` (B, P, 1) multiplies the node features."""
        hidden = row_linear(nodes, self.enter.weight)
        bias = self.enter.bias
        hidden = hidden + bias if scale is None else torch.addcmul(bias, hidden, scale)
        for convolve, norm in zip(self.convolutions, self.norms):
            hidden = hidden + norm_relu(convolve(hidden, operator), norm)
        return hidden


class Masker(nn.Module):
    """Causal scores in (0, 1) of all edges, and of all nodes if they are masked too."""

    layers = 2

    def __init__(self, n_rois: int, hidden: int, node_mask: bool) -> None:
        super().__init__()
        self.encoder = MeanGcn(n_rois, hidden, self.layers)
        self.edges = EdgeNetwork(2 * hidden)
        self.nodes = _NodeNetwork(hidden) if node_mask else None

    def forward(
        self, nodes: Tensor, edges: EdgeLists, mask: Tensor, operator: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Edge scores (B, E), the mean of both directions, and node scores (B, P, 1)."""
        hidden = self.encoder(nodes, operator)
        edge_scores = self.edges(hidden, edges, mask).sigmoid().mean(-2)
        return edge_scores, None if self.nodes is None else self.nodes(hidden).sigmoid()


class EdgeNetwork(nn.Module):
    """Scores of directed edges: Linear - BatchNorm over the batch's edges - ReLU, then Linear.

    There are three hidden layers, each half as wide as the one before.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = _halvings(width)
        self.linears = nn.ModuleList(nn.Linear(*ends, bias=False) for ends in pairwise(widths))
        self.norms = nn.ModuleList(MaskedNorm(after) for after in widths[1:])
        self.last = nn.Linear(widths[-1], 1)

    def forward(self, nodes: Tensor, edges: EdgeLists, mask: Tensor) -> Tensor:
        """Logits of both directions of every edge, (B, 2, E)."""
        first, second, third = self.linears
        sides = (row_linear(nodes, weight) for weight in first.weight.chunk(2, -1))
        sides = batch_normed_sides(*sides, mask, self.norms[0])
        if kernels.usable(second.weight, "batch_scores"):
            hidden = self._fused(*sides, edges)
        else:
            no_key = edges.pairs.new_zeros(())
            hidden = edge_hidden(*sides, second.weight, edges, 0.0, no_key).flatten(0, 1)
            present = edges.pairs.flatten() > 0
            for norm, linear in zip(self.norms[1:], (third, self.last)):
                hidden = row_linear(norm_relu(hidden, norm, present=present), linear.weight)
        return (hidden + self.last.bias).view(len(nodes), 2, -1)

    def _fused(self, sender: Tensor, receiver: Tensor, edges: EdgeLists) -> Tensor:
        """The same from normed sides on, without the last bias, (B, 2E)."""
        from brio_core.kernels.batch_scores import BatchScores

        _, second, third = (linear.weight for linear in self.linears)
        _, *norms = self.norms
        sides = (side.to(second.dtype) for side in (sender, receiver))
        first, other = ((norm.weight, norm.bias) for norm in norms)
        lists = (edges.pairs, edges.order, edges.starts)
        running = [part for norm in norms for part in (norm.running_mean, norm.running_var)]
        options = (not self.training, norms[0].eps, torch.is_grad_enabled())
        out, *found = BatchScores.apply(
            *sides, second, *first, third, *other, self.last.weight, *lists, *running, *options
        )
        if self.training:
            remember(norms[0], *found[:2], found[4])
            remember(norms[1], *found[2:4], found[4])
        return out


def _halvings(width: int) -> list[int]:
    return [max(1, width >> halvings) for halvings in range(4)]


class _NodeNetwork(nn.Sequential):
    """The same of nodes (..., d)."""

    def __init__(self, width: int) -> None:
        parts: list[nn.Module] = []
        for before, after in pairwise(widths := _halvings(width)):
            parts += [nn.Linear(before, after, bias=False), NodeNorm(after), nn.ReLU()]
        super().__init__(*parts, nn.Linear(widths[-1], 1))

    def forward(self, nodes: Tensor) -> Tensor:
        hidden = row_linear(nodes, self[0].weight)
        layers = tuple(self)
        for norm, linear in zip(layers[1::3], layers[3::3]):
            hidden = row_linear(norm_relu(hidden, norm), linear.weight)
        return hidden + self[-1].bias


class Disc(GradientMethod):
    """Masker, causal and bias encoders, and a head for each."""

    name = "disc"
    Hyperparameters = DiscHyperparameters

    def __init__(self, hyperparameters: DiscHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        hidden, layers = hyperparameters.hidden, hyperparameters.layers
        self.masker = Masker(n_rois, hidden, hyperparameters.node_mask)
        self.causal_encoder = MeanGcn(n_rois, hidden, layers)
        self.bias_encoder = MeanGcn(n_rois, hidden, layers)
        self.causal_head = nn.Linear(2 * hidden, 2)
        self.bias_head = nn.Linear(2 * hidden, 2)

    def make_features(self, inputs: Features) -> Features:
        return listed_features(inputs["fc"], self.hyperparameters.density)

    def represent(self, features: Features) -> Tensor:
        """``[z_c ; z_b]``, what the causal head reads; the bias half is fed at test time too."""
        causal, bias, _ = self.encode(features)
        return torch.cat([causal, bias], -1)

    def logits(self, features: Features) -> Tensor:
        return margin(self.causal_head(self.represent(features)))

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        s = self.hyperparameters
        causal, bias, edge_mask = self.encode(batch.features)
        losses = self.branch_losses(causal, bias, batch.label)
        weight = relative_difficulty(*losses, s.weight)
        total = apart = self.objective(*losses, weight)
        swapped = torch.zeros_like(apart)
        if phase == SWAPPED:
            order = uniform(batch.key, (len(causal),)).argsort()
            swapped = self.objective(*self.branch_losses(causal, bias, batch.label, order), weight)
            total = apart + s.lambda_swap * swapped
        logs = {
            "causal": losses[0].mean(),
            "bias": losses[1].mean(),
            "swapped": swapped,
            "weight": weight.mean(),
            "edge_mask": edge_mask.sum() / (batch.features["pairs"] > 0).sum() * 2,
        }
        return total, logs

    @classmethod
    def phase(cls, hyperparameters: DiscHyperparameters, epoch: int) -> str:
        return APART if epoch <= hyperparameters.epochs_apart else SWAPPED

    def encode(self, features: Features) -> tuple[Tensor, Tensor, Tensor]:
        """Causal and bias representations (B, d), and the causal edge mask (B, E)."""
        edges = EdgeLists.of(features)
        nodes, mask = features["nodes"], edges.mask
        # Means divide by the number of neighbours, not by the sum of their masks.
        neighbours = mask.sum(-1, keepdim=True).clamp_min(1)
        operator = mask / neighbours
        scores, node_scores = self.masker(nodes, edges, mask, operator)
        edge_mask = scores * edges.present
        causal_operator = edges.spread(edge_mask) / neighbours
        causal = self.causal_encoder(nodes, causal_operator, node_scores)
        opposite = None if node_scores is None else 1 - node_scores
        bias = self.bias_encoder(nodes, operator - causal_operator, opposite)
        return causal.mean(-2), bias.mean(-2), edge_mask

    def branch_losses(
        self, causal: Tensor, bias: Tensor, label: Tensor, order: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Cross-entropies (B,) of both heads; each head trains its own encoder only.

        With ``order``, subject i's causal vector meets the bias vector of subject order[i]. That
        pair's bias loss belongs to order[i], so it is listed there: the mean is the same, and
        only constants are permuted.
        """
        other_causal, other_bias = causal.detach(), bias.detach()
        if order is not None:
            other_causal, other_bias = other_causal[order.argsort()], other_bias[order]
        causal_margin = margin(self.causal_head(torch.cat([causal, other_bias], -1)))
        bias_margin = margin(self.bias_head(torch.cat([other_causal, bias], -1)))
        return _cross_entropy(causal_margin, label), _cross_entropy(bias_margin, label)

    def objective(self, causal: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
        """Weighted causal loss plus the generalised cross-entropy of the bias branch."""
        easy = generalised_cross_entropy(bias, self.hyperparameters.exponent)
        return (weight * causal).mean() + self.hyperparameters.lambda_disentangle * easy.mean()


def _cross_entropy(logit: Tensor, label: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(
        logit, label.to(logit.dtype), reduction="none"
    )


def generalised_cross_entropy(cross_entropy: Tensor, exponent: float) -> Tensor:
    """``q p_y^q CE`` with ``p_y`` held constant, as coded by the authors.

    Its gradient is q times that of ``(1 - p_y^q) / q``: subjects that are fitted already pull more.
    """
    probability = (-cross_entropy).exp().detach()
    return exponent * probability.pow(exponent) * cross_entropy


def relative_difficulty(causal: Tensor, bias: Tensor, per: str) -> Tensor:
    """``CE_b / (CE_b + CE_c)``, a constant per subject or batch: large where the bias fails."""
    causal, bias = causal.detach(), bias.detach()
    if per == "batch":
        causal, bias = causal.mean(), bias.mean()
    return bias / (bias + causal + 1e-8)
