"""DeCI: Yu et al., Moving Beyond Functional Connectivity, IEEE TMI, 2026.

No FC: every ROI's series is embedded and taken apart into drift and cycle, block after block, and
both vote. The released loss compares every prediction with every label of the batch, its
gradients are never set to zero, and its checkpoints are chosen on the reported subjects; here a
prediction is compared with its own label, and the other two are the trainer's. Released code
drops scans of unusual lengths; here a scan is cropped, or mirrored, to the fold's common length.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.connectivity import FISHER_Z
from brio_core.methods.hyperparameters import GradientHyperparameters
from brio_core.methods.interface import Batch, Features, GradientMethod, binary_cross_entropy
from brio_core.methods.layers.perceptrons import dropout_gelu, dropout_norm, row_linear
from brio_core.methods.layers.series import shifted, standardised_windows
from brio_core.methods.training_scans import TrainingScans, TrainView
from brio_core.system.randomness import dropout, uniform

# Tensor cores read rows at full speed whose length is a multiple of so many numbers.
GRAIN = 8


@dataclass(frozen=True)
class DeciHyperparameters(GradientHyperparameters):
    """``scan_length`` (of training scans) is ``median`` or ``shortest``.

    ``criterion`` is ``cross_entropy``, or ``squared``: the error of probabilities.
    """

    # It reads series and no connectivity.
    kinds: ClassVar[tuple[str, ...]] = (FISHER_Z,)

    hidden: int
    layers: int
    dropout: float
    scan_length: Literal["median", "shortest"]
    criterion: Literal["cross_entropy", "squared"]


class RunningFilter(nn.Module):
    """A causal filter per channel along the last axis, as long as that axis; at first its mean.

    ``out_j = b + sum_{i <= j} k_{j - i} x_i``, with k = 1 / width and b = 0 to begin with.
    """

    def __init__(self, channels: int, width: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.full((channels, width), 1 / width))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, values: Tensor) -> Tensor:
        """Values (channels, B, width) to the same shape."""
        width = self.kernel.shape[-1]
        operator = shifted(self.kernel, width, 1)[..., :width]
        return values @ operator + self.bias[:, None, None]


class Block(nn.Module):
    """Drift and cycle of embedded ROIs (P, B, d); what both leave over goes to the next block."""

    # Streams of random numbers that one block takes.
    streams = 3

    def __init__(self, n_rois: int, width: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.drift = RunningFilter(n_rois, width)
        self.gate = nn.ModuleList([nn.Linear(width, 2 * width), nn.Linear(2 * width, width)])
        self.gated = nn.Linear(width, width)
        self.gated_norm = nn.LayerNorm(width, eps=1e-6)
        self.mix = nn.ModuleList([nn.Linear(width, 2 * width), nn.Linear(2 * width, width)])
        self.mix_norm = nn.LayerNorm(width, eps=1e-6)

    def forward(
        self, embedded: Tensor, key: Tensor | None, stream: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Drift D, cycle C and the rest; a key drops units."""
        drift = dropout(self.drift(embedded), self.rate, key, stream)
        rest = embedded - drift
        opened = self._perceive(self.gate, rest, key, stream + 1)
        heard = row_linear(rest * (opened + self.gate[1].bias).sigmoid(), self.gated.weight)
        mixed = dropout_norm(rest, heard, self.gated.bias, self.gated_norm)
        told = self._perceive(self.mix, mixed, key, stream + 2)
        cycle = dropout_norm(mixed, told, self.mix[1].bias, self.mix_norm)
        return drift, cycle, rest - cycle

    def _perceive(
        self, layers: nn.ModuleList, values: Tensor, key: Tensor | None, stream: int
    ) -> Tensor:
        """What two layers make of the values, without the last bias."""
        first, second = layers
        hidden = row_linear(values, first.weight)
        hidden = dropout_gelu(hidden, first.bias, self.rate, key, stream)
        return row_linear(hidden, second.weight)


class Deci(GradientMethod):
    """Linear embedding of time, blocks, and one linear vote per drift and per cycle."""

    name = "deci"
    Hyperparameters = DeciHyperparameters
    needs = ("bold", "frames")

    def __init__(self, hyperparameters: DeciHyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        width = hyperparameters.hidden
        # Its input is as long as the scans of the fold, which :meth:`prepare` finds out.
        self.embed = nn.Linear(1, width)
        # Frames that are embedded. Stacked folds have equal shapes: weights beyond stay zero.
        self.register_buffer("length", torch.ones((), dtype=torch.int64))
        self.blocks = nn.ModuleList(
            Block(n_rois, width, hyperparameters.dropout) for _ in range(hyperparameters.layers)
        )
        self.heads = nn.ModuleList(nn.Linear(width, 1) for _ in range(2 * hyperparameters.layers))

    @staticmethod
    def common_length(hyperparameters: DeciHyperparameters, frames: np.ndarray) -> int:
        """The median of the training scans' lengths, rounded down, or the shortest of them."""
        return int(np.median(frames) if hyperparameters.scan_length == "median" else np.min(frames))

    @classmethod
    def share(cls, scans: TrainingScans, hyperparameters: DeciHyperparameters) -> list[Features]:
        """Room for the longest of all folds' lengths."""
        frames = scans.frames.cpu().numpy()
        known = (scans.site >= 0).cpu().numpy()
        each = (cls.common_length(hyperparameters, row[here]) for row, here in zip(frames, known))
        width = torch.tensor(-(-max(each) // GRAIN) * GRAIN)
        return [{"width": width} for _ in frames]

    def prepare(self, train: TrainView) -> None:
        length = self.common_length(self.hyperparameters, train.frames.cpu().numpy())
        self.length.fill_(length)
        self.embed = nn.Linear(length, self.hyperparameters.hidden).to(train.label.device)
        empty = int(train.shared.get("width", length)) - length
        self.embed.weight = nn.Parameter(functional.pad(self.embed.weight.detach(), (0, empty)))

    def load_state_dict(self, state_dict: Any, *arguments: Any, **options: Any) -> Any:
        """Load a state; one of earlier versions has no length, and no weights beyond it."""
        length = torch.tensor(state_dict["embed.weight"].shape[1])
        return super().load_state_dict({"length": length, **state_dict}, *arguments, **options)

    def represent(self, features: Features) -> Tensor:
        """Means over ROIs of every block's drift and cycle, (B, 2 d blocks), of the middle."""
        surplus = (features["frames"] - self.length).clamp_min(0)
        parts, _ = self._decompose(features, surplus // 2, None)
        return self._pool(parts)

    def logits(self, features: Features) -> Tensor:
        return self._vote(self.represent(features))

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        surplus = (batch.features["frames"] - self.length).clamp_min(0)
        start = (uniform(batch.key, tuple(surplus.shape)) * (surplus + 1)).long()
        parts, _ = self._decompose(batch.features, start, batch.key)
        logits = self._vote(self._pool(parts))
        if self.hyperparameters.criterion == "squared":
            return functional.mse_loss(logits.sigmoid(), batch.label.to(logits.dtype)), {}
        return binary_cross_entropy(logits, batch.label), {}

    def _decompose(
        self, features: Features, start: Tensor, key: Tensor | None
    ) -> tuple[list[Tensor], Tensor]:
        """Drifts and cycles of all blocks in turn, and the rest, (P, B, d) each."""
        # ROIs lead from here on, because each has a filter of its own.
        scans = (features["bold"], features["frames"], start, self.length)
        series = standardised_windows(*scans, self.embed.weight.shape[1])
        rest = row_linear(series, self.embed.weight) + self.embed.bias
        parts = []
        for number, block in enumerate(self.blocks):
            drift, cycle, rest = block(rest, key, 1 + number * block.streams)
            parts += [drift, cycle]
        return parts, rest

    @staticmethod
    def _pool(parts: list[Tensor]) -> Tensor:
        return torch.cat([part.mean(0) for part in parts], -1)

    def _vote(self, represented: Tensor) -> Tensor:
        parts = represented.split(self.hyperparameters.hidden, -1)
        return sum(head(part) for head, part in zip(self.heads, parts)).squeeze(-1)
