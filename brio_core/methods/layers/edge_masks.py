"""Random masks on edges: concrete relaxations, straight-through samples, and their penalties.

Values stand in lists (..., E) beside ``present`` (..., E), which is 0 in places without an edge.
"""

import math

import torch
from torch import Tensor

from brio_core import kernels
from brio_core.methods.layers.edge_lists import EdgeLists
from brio_core.system.randomness import fold_in, uniform

# Half a step of the 24-bit grid of uniform numbers, so that no logarithm meets a zero.
TINY = 2.0**-25
# Where one Gumbel variable leaves a sample above 0 in half of the cases.
GUMBEL_MEDIAN = math.log(math.log(2))


def logistic_noise(key: Tensor, shape: tuple[int, ...], stream: int) -> Tensor:
    """``log u - log(1 - u)``: the difference of two Gumbel variables."""
    return uniform(key, shape, stream).logit(TINY)


def gumbel_noise(key: Tensor, shape: tuple[int, ...], stream: int) -> Tensor:
    """``-log(-log u)``."""
    return -(-uniform(key, shape, stream).clamp_min(TINY).log()).log()


def concrete(logits: Tensor, noise: Tensor, temperature: float = 1.0) -> Tensor:
    """A relaxed Bernoulli sample in (0, 1)."""
    noisy = logits + noise
    return (noisy if temperature == 1 else noisy / temperature).sigmoid()


def straight_through(soft: Tensor) -> Tensor:
    """1 where ``soft`` is above one half, else 0, with the gradient of ``soft``."""
    hard = (soft > 0.5).to(soft.dtype)
    # In this order the forward value is exactly 0 or 1.
    return hard + (soft - soft.detach())


def bernoulli_masks(rate: Tensor, count: int, key: Tensor, stream: int) -> Tensor:
    """``count`` samples (count, *shape), ones with probability ``rate``, with its gradient."""
    drawn = uniform(key, (count, *rate.shape), stream) < rate.detach()
    return drawn.to(rate.dtype) + (rate - rate.detach())


def drawn_graphs(
    rate: Tensor, edges: EdgeLists, count: int, key: Tensor, stream: int
) -> list[tuple[Tensor, Tensor]]:
    """The samples of :func:`bernoulli_masks` as graphs (B, P, P) with ones on the diagonal.

    ``rate`` (B, E) is that of undirected edges. Every graph comes twice, for two layers: with a
    name for each of them, a fused kernel adds up their gradients at the edges alone.
    """
    square = (edges.n_rois, edges.n_rois)
    if kernels.usable(rate, "edge_draws"):
        from brio_core.kernels.edge_graphs import DrawnGraphs

        fixed = (rate, edges.pairs, edges.slots, fold_in(key, stream + 1))
        drawn = [DrawnGraphs.apply(*fixed, number) for number in range(count)]
        return [(one.unflatten(-1, square), two.unflatten(-1, square)) for one, two in drawn]
    identity = torch.eye(edges.n_rois, dtype=rate.dtype, device=rate.device)
    masks = bernoulli_masks(rate, count, key, stream)
    return [(graph, graph) for graph in (edges.spread(kept) + identity for kept in masks)]


def pair_variance(
    values: Tensor, edges: EdgeLists, mask: Tensor, absent: str
) -> tuple[Tensor, Tensor]:
    """Variance over graphs of the values (B, 2, E) of every pair, and their number, (P, P).

    ``skip`` counts the graphs that have the edge; with ``zero`` the value of an absent edge is
    zero, and all graphs count. ``mask`` is ``edges.mask``.
    """
    if kernels.usable(values, "edge_variance"):
        from brio_core.kernels.edge_variance import EdgeVariance

        lists = (edges.pairs, edges.slots)
        found = EdgeVariance.apply(values.flatten(-2), *lists, absent == "zero")
        variance, _, count = (part.unflatten(-1, (edges.n_rois, -1)) for part in found)
        return variance, count
    above, below = edges.spread(values.movedim(-2, 0)).unbind()
    dense = torch.where(torch.ones_like(mask[0], dtype=torch.bool).triu(), above, below)
    if absent == "zero":
        mask = torch.ones_like(mask)
    count = mask.sum(0)
    mean = dense.sum(0) / count.clamp_min(1)
    return ((dense - mean) * mask).square().sum(0) / (count - 1).clamp_min(1), count


def binary_masks(
    scores: Tensor,
    bias: Tensor,
    edges: EdgeLists,
    key: Tensor | None,
    stream: int,
    noise: str,
    temperature: float,
) -> Tensor:
    """Masks of K experts on undirected edges, ones and zeros (K, B, E); zero in empty places.

    The logit of an edge is the mean score of its two directions (K, B, 2, E) plus a bias (K,).
    With a key the masks are drawn, with straight-through gradients; without one they are those
    that would be drawn in more than half of the cases.
    """
    gumbel = noise == "gumbel"
    if key is not None and kernels.usable(scores, "binary_masks"):
        from brio_core.kernels.binary_masks import BinaryMasks

        # The place that ``randomness.uniform`` looks up for this stream.
        seed = fold_in(key, stream + 1)
        return BinaryMasks.apply(scores, bias, seed, edges.starts, gumbel, temperature)
    logits = scores.mean(-2) + bias[:, None, None]
    if key is None:
        drawn = (logits > (GUMBEL_MEDIAN if gumbel else 0.0)).to(logits.dtype)
    else:
        draw = gumbel_noise if gumbel else logistic_noise
        drawn = straight_through(
            concrete(logits, draw(key, tuple(logits.shape), stream), temperature)
        )
    return drawn * edges.present


def bernoulli_divergence(
    attention: Tensor, rate: float, present: Tensor, guard: float = 1e-6
) -> Tensor:
    """KL of Bernoulli(attention) from Bernoulli(rate), averaged over all edges of the batch."""
    kept = attention * (attention / rate + guard).log()
    dropped = (1 - attention) * ((1 - attention) / (1 - rate) + guard).log()
    present = present.expand_as(attention)
    return ((kept + dropped) * present).sum() / present.sum()


def keep_rate(masks: Tensor, present: Tensor) -> Tensor:
    """Share of a graph's edges that a mask keeps, (..., E) to (...); masks are 0 off the edges."""
    return masks.sum(-1) / present.sum(-1)


def correlations(masks: Tensor, present: Tensor, guard: float = 1e-6) -> Tensor:
    """Correlation over present items of every two masks, (B, K, N) to (B, K, K).

    Masks are 0 where nothing is present. A mask without variance is uncorrelated with everything,
    itself included.
    """
    count = present.sum(-1)[:, None]
    mean = masks.sum(-1) / count
    # Sums of zeros and ones are exact, so nothing is lost to cancellation.
    covariance = masks @ masks.mT / count[..., None] - mean[..., :, None] * mean[..., None, :]
    variance = covariance.diagonal(dim1=-2, dim2=-1)
    scale = (variance[..., :, None] * variance[..., None, :]).clamp_min(0) + guard**2
    return covariance / scale.sqrt()


def diversity_hinge(masks: Tensor, present: Tensor, allowed: float) -> Tensor:
    """What the mean absolute correlation of a graph's K masks exceeds ``allowed`` by.

    ``masks`` (B, K, N), averaged over graphs; 0 if there is a single mask.
    """
    count = masks.shape[1]
    if count < 2:
        return masks.new_zeros(())
    others = ~torch.eye(count, dtype=torch.bool, device=masks.device)
    strength = (correlations(masks, present).abs() * others).sum((-1, -2)) / (count * (count - 1))
    return (strength - allowed).relu().mean()
