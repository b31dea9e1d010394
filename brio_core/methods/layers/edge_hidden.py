"""The second layer of a network on edges: ``W drop(relu(s_i + r_j))`` for every listed edge.

The first layer of ``[h_i ; h_j]`` is ``s_i + r_j``, wide and cheap to make again. So it is never in
memory as a whole: a GPU makes it tile by tile, plain torch some graphs at a time.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from brio_core.kernels.functions import Fused
from brio_core.methods.layers.edge_lists import EdgeLists
from brio_core.system.randomness import fold_in, uniform_at

# Numbers of one fold between the layers at a time, in plain torch.
AT_ONCE = 2**23


def edge_hidden(
    sender: Tensor, receiver: Tensor, weight: Tensor, edges: EdgeLists, rate: float, key: Tensor
) -> Tensor:
    """Sides (B, P, D) and W (d, D) to (B, 2E, d); empty places hold zero.

    ``key`` has its stream folded in. Place e of graph b has the key ``fold_in(key, 2E b + e)``.
    """
    sides = (side.to(weight.dtype) for side in (sender, receiver))
    return Hidden.apply(*sides, weight, key, edges.pairs, edges.order, edges.starts, rate)


class Hidden(Fused):
    """The same with all axes of folds in front."""

    @staticmethod
    def run(sender, receiver, weight, key, pairs, order, starts, rate):
        layer = _First(sender, receiver, key, pairs, rate)
        weight = _folds(weight, 2)
        found = [(layer.of(part).flatten(1, 2) @ weight.mT) for part in layer.parts()]
        return torch.cat(found, 1).to(sender.dtype).view(*pairs.shape, -1)

    @staticmethod
    def slopes(grad, sender, receiver, weight, key, pairs, order, starts, rate):
        layer = _First(sender, receiver, key, pairs, rate)
        matrix, grad = _folds(weight, 2), _folds(grad, 3)
        order, starts = _folds(order.long(), 2), _folds(starts, 2)
        sides, to_weight = ([], []), 0.0
        for part in layer.parts():
            first, slope = layer.of(part), grad[:, part].flatten(1, 2)
            to_weight = to_weight + slope.mT @ first.flatten(1, 2)
            slope = (slope @ matrix).view_as(first) * (first > 0) / (1 - rate)
            # The edges that a node receives are the way back of those that it sends.
            there = order[:, part]
            back = (there + there.shape[-1] // 2) % there.shape[-1]
            for side, places in zip(sides, (there, back)):
                side.append(_sums(_rows(slope, places), starts[:, part]))
        to_sides = (torch.cat(side, 1).view_as(sender) for side in sides)
        return *to_sides, to_weight.view_as(weight)


class _First:
    """What the first layer gives, for some graphs of all F folds at a time."""

    def __init__(self, sender: Tensor, receiver: Tensor, key: Tensor, pairs: Tensor, rate: float):
        self.sender, self.receiver = _folds(sender, 3), _folds(receiver, 3)
        self.key, self.pairs, self.rate = _folds(key, 0), _folds(pairs, 2), rate
        self.width = sender.shape[-1]

    def parts(self) -> Iterator[slice]:
        """Slices of graphs, whose number does not depend on how many folds there are."""
        graphs, places = self.pairs.shape[1:]
        size = max(1, AT_ONCE // (places * self.width))
        return (slice(start, start + size) for start in range(0, graphs, size))

    def of(self, part: slice) -> Tensor:
        n_rois, pairs = self.sender.shape[-2], self.pairs[:, part]
        first = _rows(self.sender[:, part], pairs // n_rois)
        first = (first + _rows(self.receiver[:, part], pairs % n_rois)).relu()
        first = first * (pairs > 0)[..., None]
        if self.rate == 0:
            return first
        start, count = part.start * pairs.shape[-1], pairs[0].numel()
        place = torch.arange(start, start + count, device=first.device)
        key = fold_in(self.key[:, None], place).view(*pairs.shape, 1)
        drawn = uniform_at(key, torch.arange(self.width, device=first.device))
        return first * (drawn >= self.rate) / (1 - self.rate)


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
