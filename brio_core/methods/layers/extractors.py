"""Networks that score the edges of a graph for GSAT and BrainOOD, with dropout in training.

One hidden layer needs no vector per edge (:mod:`brio_core.methods.layers.edge_scores`). Two need
one, of the second layer's width only (:mod:`brio_core.methods.layers.edge_hidden`). Norms remove
biases, so the layers in front of them have none.
"""

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.methods.layers.edge_hidden import edge_hidden
from brio_core.methods.layers.edge_lists import EdgeLists
from brio_core.methods.layers.edge_scores import EPSILON, edge_scores, normed_sides
from brio_core.system.errors import BrioError
from brio_core.system.randomness import fold_in, uniform, uniform_at


def make_extractor(width: int, hidden: tuple[int, ...], rate: float) -> nn.Module:
    """The network on ``[h_i ; h_j]`` with the widths ``hidden`` of its one or two hidden layers."""
    if len(hidden) not in (1, 2) or min(hidden) < 1:
        raise BrioError(
            f"extractor_hidden is {list(hidden)}, but must list the widths of one or two layers"
        )
    kind = ShallowExtractor if len(hidden) == 1 else DeepExtractor
    return kind(width, *hidden, rate)


class ShallowExtractor(nn.Module):
    """One hidden layer; its units are dropped for all edges of a graph at once."""

    def __init__(self, width: int, hidden: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.first = nn.Linear(2 * width, hidden, bias=False)
        self.last = nn.Linear(hidden, 1)

    def forward(
        self, nodes: Tensor, edges: EdgeLists, mask: Tensor, key: Tensor | None, stream: int
    ) -> Tensor:
        """Logits of both directions of every edge, (B, 2, E); units are dropped with a key."""
        send, receive = self.first.weight.chunk(2, -1)
        sides = normed_sides(nodes @ send.T, nodes @ receive.T, mask)
        if key is not None and self.rate > 0:
            drawn = uniform(key, (len(nodes), self.first.out_features), stream)
            keep = (drawn >= self.rate) / (1 - self.rate)
            # relu(k x) = k relu(x) for k >= 0.
            sides = [side * keep[..., None, :] for side in sides]
        return edge_scores(*sides, self.last.weight.squeeze(0), edges) + self.last.bias


class DeepExtractor(nn.Module):
    """Two layers as published: Linear - InstanceNorm over a graph's edges - ReLU - dropout."""

    def __init__(self, width: int, first: int, second: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.first = nn.Linear(2 * width, first, bias=False)
        self.second = nn.Linear(first, second, bias=False)
        self.last = nn.Linear(second, 1)

    def forward(
        self, nodes: Tensor, edges: EdgeLists, mask: Tensor, key: Tensor | None, stream: int
    ) -> Tensor:
        """Logits of both directions of every edge, (B, 2, E); units are dropped with a key."""
        send, receive = self.first.weight.chunk(2, -1)
        sides = normed_sides(nodes @ send.T, nodes @ receive.T, mask)
        rate = 0.0 if key is None else self.rate
        key = edges.pairs.new_zeros(()) if key is None else fold_in(key, stream + 1)
        weights = self.second.weight, self.last.weight.squeeze(0)
        keys = fold_in(key, 0), fold_in(key, 1)
        scores = chain(*sides, *weights, edges, rate, *keys)
        return scores.unflatten(-1, (2, -1)) + self.last.bias


def chain(
    sender: Tensor, receiver: Tensor, second: Tensor, last: Tensor, edges: EdgeLists,
    rate: float, key: Tensor, other_key: Tensor,
) -> Tensor:  # fmt: skip
    """What the second and the last layer make of both sides (B, P, D), (B, 2E)."""
    if kernels.usable(second, "normed_scores"):
        from brio_core.kernels.normed_scores import NormedScores

        sides = (side.to(second.dtype) for side in (sender, receiver))
        lists = (edges.pairs, edges.order, edges.starts)
        given = (*sides, second, last, key, other_key, *lists, rate, torch.is_grad_enabled())
        return NormedScores.apply(*given)[0]
    hidden = edge_hidden(sender, receiver, second, edges, rate, key)
    return normed_scores(hidden, last, edges.pairs, rate, other_key)


def normed_scores(
    hidden: Tensor, weight: Tensor, pairs: Tensor, rate: float, key: Tensor
) -> Tensor:
    """``w . drop(relu(norm(hidden)))`` of hidden (B, 2E, d), normalised over a graph's edges.

    Empty places hold zero, before and after; ``key`` has its stream folded in. Place e of graph b
    has the key ``fold_in(key, 2E b + e)``.
    """
    present = (pairs > 0)[..., None]
    count = present.sum(-2, keepdim=True).clamp_min(1)
    centred = (hidden - hidden.sum(-2, keepdim=True) / count) * present
    scale = (centred.square().sum(-2, keepdim=True) / count + EPSILON).rsqrt()
    heard = (centred * scale).relu()
    if rate > 0:
        places, units = (torch.arange(n, device=key.device) for n in (pairs.numel(), len(weight)))
        drawn = uniform_at(fold_in(key, places).view(*pairs.shape, 1), units)
        heard = heard * (drawn >= rate) / (1 - rate)
    return (heard @ weight[:, None]).squeeze(-1)
