"""Networks that score the edges of a graph for GSAT and BrainOOD, with dropout in training.

One hidden layer needs no vector per edge (:mod:`brio_core.methods.layers.edge_scores`). Two need
one, but only a few graphs at a time: what is between the layers is made again on the way back.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from brio_core.kernels.functions import Fused
from brio_core.methods.layers.edge_lists import EdgeLists
from brio_core.methods.layers.edge_scores import EdgeScorer, InstanceEdgeNorm
from brio_core.system.errors import BrioError
from brio_core.system.randomness import fold_in, uniform, uniform_each

# Numbers of one fold between the layers at a time.
AT_ONCE = 2**23
EPSILON = 1e-5


def make_extractor(width: int, hidden: tuple[int, ...], rate: float) -> nn.Module:
    """The network on ``[h_i ; h_j]`` with the widths ``hidden`` of its one or two hidden layers."""
    if len(hidden) not in (1, 2) or min(hidden) < 1:
        raise BrioError(
            f"extractor_hidden is {list(hidden)}, but must list the widths of one or two layers"
        )
    kind = ShallowExtractor if len(hidden) == 1 else DeepExtractor
    return kind(width, *hidden, rate)


class ShallowExtractor(EdgeScorer):
    """One hidden layer; its units are dropped for all edges of a graph at once."""

    def __init__(self, width: int, hidden: int, rate: float) -> None:
        super().__init__(width, hidden, norm="instance")
        self.rate = rate

    def forward(
        self, nodes: Tensor, edges: EdgeLists, mask: Tensor, key: Tensor | None, stream: int
    ) -> Tensor:
        """Logits of both directions of every edge, (B, 2, E); units are dropped with a key."""
        keep = None
        if key is not None and self.rate > 0:
            drawn = uniform(key, (len(nodes), self.first.out_features), stream)
            keep = (drawn >= self.rate) / (1 - self.rate)
        return super().forward(nodes, edges, mask, keep)


class DeepExtractor(nn.Module):
    """Two hidden layers as published: Linear - InstanceNorm over a graph's edges - ReLU - dropout.

    The norms remove biases, so the layers in front of them have none.
    """

    def __init__(self, width: int, first: int, second: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.first = nn.Linear(2 * width, first, bias=False)
        self.second = nn.Linear(first, second, bias=False)
        self.last = nn.Linear(second, 1)
        self.norm = InstanceEdgeNorm(first)

    def forward(
        self, nodes: Tensor, edges: EdgeLists, mask: Tensor, key: Tensor | None, stream: int
    ) -> Tensor:
        """Logits of both directions of every edge, (B, 2, E); units are dropped with a key."""
        send, receive = self.first.weight.chunk(2, -1)
        sides = self.norm(nodes @ send.T, nodes @ receive.T, mask, None)
        rate = 0.0 if key is None else self.rate
        key = edges.pairs.new_zeros(()) if key is None else fold_in(key, stream + 1)
        scores = DeepScores.apply(
            *(side.to(self.second.weight.dtype) for side in sides),
            self.second.weight,
            self.last.weight.squeeze(0),
            key,
            *(edges.pairs, edges.order, edges.starts),
            rate,
        )
        return scores.unflatten(-1, (2, -1)) + self.last.bias


class DeepScores(Fused):
    """``w . drop(relu(norm(W drop(relu(s_i + r_j)))))`` of all directed edges, (*K, B, 2E).

    Sides are (*K, B, P, D), W (*K, d, D), w (*K, d), keys (*K). Empty places hold zero.
    """

    @staticmethod
    def run(sender, receiver, second, last, key, pairs, order, starts, rate):
        network = _Network(sender, receiver, second, last, key, pairs, rate)
        scores = [network.layers(part)[-1] @ network.last.mT for part in network.parts()]
        return (torch.cat(scores, 1).squeeze(-1) * network.present).view(pairs.shape)

    @staticmethod
    def slopes(grad, sender, receiver, second, last, key, pairs, order, starts, rate):
        network = _Network(sender, receiver, second, last, key, pairs, rate)
        order, starts = _folds(order.long(), 2), _folds(starts, 2)
        grad = _folds(grad, 2) * network.present
        sides, to_second, to_last = ([], []), 0.0, 0.0
        for part in network.parts():
            first, normed, scale, heard = network.layers(part)
            to_last = to_last + (heard * grad[:, part, :, None]).sum((1, 2))
            slope = grad[:, part, :, None] * network.last * network.opened(heard)
            slope = network.before_norm(slope, normed, scale, part).flatten(1, 2)
            to_second = to_second + slope.mT @ first.flatten(1, 2)
            slope = (slope @ network.second).view_as(first) * network.opened(first)
            # The edges that a node receives are the way back of those that it sends.
            there = order[:, part]
            back = (there + there.shape[-1] // 2) % there.shape[-1]
            for side, places in zip(sides, (there, back)):
                side.append(_sums(_rows(slope, places), starts[:, part]))
        to_sides = [torch.cat(side, 1).view_as(sender) for side in sides]
        return *to_sides, to_second.view_as(second), to_last.view_as(last)


class _Network:
    """The layers between sides and scores, for some graphs of all F folds at a time."""

    def __init__(self, sender, receiver, second, last, key, pairs, rate) -> None:
        self.sender, self.receiver = _folds(sender, 3), _folds(receiver, 3)
        self.second, self.last = _folds(second, 2), _folds(last, 1)[:, None, None]
        self.key, self.pairs, self.rate = _folds(key, 0), _folds(pairs, 2), rate
        self.present = self.pairs > 0

    def parts(self) -> Iterator[slice]:
        """Slices of graphs, whose number does not depend on how many folds there are."""
        graphs, places = self.pairs.shape[1:]
        size = max(1, AT_ONCE // (places * self.second.shape[-1]))
        return (slice(start, start + size) for start in range(0, graphs, size))

    def layers(self, part: slice) -> tuple[Tensor, ...]:
        """What the first layer gives, the second layer's norm and scale, and what it gives."""
        n_rois, pairs = self.sender.shape[-2], self.pairs[:, part]
        first = _rows(self.sender[:, part], pairs // n_rois)
        first = self._dropped(first + _rows(self.receiver[:, part], pairs % n_rois), part, 0)
        hidden = (first.flatten(1, 2) @ self.second.mT).to(first.dtype)
        hidden = hidden.unflatten(1, pairs.shape[1:])
        centred = self._centred(hidden, part)
        scale = (self._mean(centred.square(), part) + EPSILON).rsqrt()
        normed = centred * scale
        return first, normed, scale, self._dropped(normed, part, 1)

    def before_norm(self, slope: Tensor, normed: Tensor, scale: Tensor, part: slice) -> Tensor:
        """The gradient in front of the second layer's norm, from that behind it."""
        along = normed * self._mean(slope * normed, part)
        return scale * (self._centred(slope, part) - along)

    def opened(self, values: Tensor) -> Tensor:
        """The slope of ReLU and dropout, from what they gave."""
        return (values > 0) / (1 - self.rate)

    def _mean(self, values: Tensor, part: slice) -> Tensor:
        """Over the edges of every graph, for values that are zero where there is no edge."""
        count = self.present[:, part].sum(-1)[..., None, None]
        return values.sum(-2, keepdim=True) / count.clamp_min(1)

    def _centred(self, values: Tensor, part: slice) -> Tensor:
        present = self.present[:, part, :, None]
        values = values * present
        return (values - self._mean(values, part)) * present

    def _dropped(self, values: Tensor, part: slice, layer: int) -> Tensor:
        values = values.relu()
        if self.rate == 0:
            return values
        drawn = uniform_each(fold_in(self.key, layer, part.start), values[0].numel())
        return values.mul_((drawn.view_as(values) >= self.rate) / (1 - self.rate))


def _folds(values: Tensor, axes: int) -> Tensor:
    """All axes before the last ``axes`` as one."""
    return values.reshape(-1, *values.shape[values.ndim - axes :])


def _rows(values: Tensor, index: Tensor) -> Tensor:
    """Rows ``index`` (F, B, n) of every graph's values (F, B, m, D)."""
    graphs = values.shape[0] * values.shape[1]
    first = torch.arange(graphs, device=index.device).view(*values.shape[:2], 1)
    chosen = values.reshape(-1, values.shape[-1])[(index + first * values.shape[2]).flatten()]
    return chosen.view(*index.shape, -1)


def _sums(values: Tensor, starts: Tensor) -> Tensor:
    """Sums (F, B, P, D) of values (F, B, n, D) from one ``starts`` (F, B, P + 1) to the next.

    Not by atomic additions, whose order differs from run to run.
    """
    lengths = starts.diff().long().flatten(0, 1)
    # Unsafe: what is behind the last length, the empty places, belongs to nobody.
    sums = torch.segment_reduce(values.flatten(0, 1), "sum", lengths=lengths, axis=1, unsafe=True)
    return sums.unflatten(0, values.shape[:2])
