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


def drawn_attention(scores: Tensor, key: Tensor, stream: int) -> Tensor:
    """Relaxed samples ``concrete(scores, logistic_noise)``, each place with noise of its own."""
    if kernels.usable(scores, "edge_masks"):
        from brio_core.kernels.edge_masks import Attention

        return Attention.apply(scores, fold_in(key, stream + 1), TINY)
    return concrete(scores, logistic_noise(key, tuple(scores.shape), stream))


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
) -> list[Tensor]:
    """The samples of :func:`bernoulli_masks` as graphs (B, P, P) with ones on the diagonal.

    ``rate`` (B, E) is that of undirected edges.
    """
    if kernels.usable(rate, "edge_lists"):
        from brio_core.kernels.edge_lists import Spread

        drawn = (edges.pairs, edges.slots, fold_in(key, stream + 1), edges.n_rois)
        return [Spread.apply(rate, *drawn, n * rate.numel(), 1.0) for n in range(count)]
    masks = bernoulli_masks(rate, count, key, stream)
    return [edges.spread(kept, 1.0) for kept in masks]


def alignment(scores: Tensor, edges: EdgeLists, mask: Tensor, absent_edges: str) -> Tensor:
    """Standard deviation over subjects of every pair's logit (B, 2, E), averaged over pairs.

    ``skip`` takes the subjects that have the edge, and pairs that two of them have; with ``zero``
    the logit of an absent edge is zero, and all pairs count. ``mask`` is ``edges.mask``.
    """
    above, below = edges.spread(scores.movedim(-2, 0)).unbind()
    logits = torch.where(torch.ones_like(mask[0], dtype=torch.bool).triu(), above, below)
    if absent_edges == "zero":
        mask = torch.ones_like(mask)
    count = mask.sum(0)
    mean = logits.sum(0) / count.clamp_min(1)
    variance = ((logits - mean) * mask).square().sum(0) / (count - 1).clamp_min(1)
    # The root of zero has no derivative.
    varies = variance != 0
    deviation = variance.where(varies, 1).sqrt() * varies
    return deviation.sum() / (count > 1).sum().clamp_min(1)


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

    The logit of an edge is the mean score of its two directions (K, B, E) plus a bias (K,).
    With a key the masks are drawn, with straight-through gradients; without one they are those
    that would be drawn in more than half of the cases.
    """
    gumbel = noise == "gumbel"
    threshold = GUMBEL_MEDIAN if gumbel else 0.0
    if kernels.usable(scores, "edge_masks"):
        from brio_core.kernels.edge_masks import BinaryMasks, FixedMasks

        if key is None:
            return FixedMasks.apply(scores, bias, edges.starts, threshold)
        given = (scores, bias, fold_in(key, stream + 1), edges.starts)
        return BinaryMasks.apply(*given, TINY, temperature, gumbel)
    logits = scores + bias[:, None, None]
    if key is None:
        drawn = (logits > threshold).to(logits.dtype)
    else:
        draw = gumbel_noise if gumbel else logistic_noise
        drawn = straight_through(
            concrete(logits, draw(key, tuple(logits.shape), stream), temperature)
        )
    return drawn * edges.present


def bernoulli_divergence(
    attention: Tensor, rate: float, present: Tensor, guard: float = 1e-6
) -> Tensor:
    """KL of Bernoulli(attention) from Bernoulli(rate), averaged over all edges of the batch.

    Attention (B, 2, E) and present (B, 1, E).
    """
    if kernels.usable(attention, "edge_masks"):
        from brio_core.kernels.edge_masks import Divergence

        sums = Divergence.apply(attention, present, rate, guard)
        return sums.sum() / (present.sum() * attention.shape[-2])
    kept = attention * (attention / rate + guard).log()
    dropped = (1 - attention) * ((1 - attention) / (1 - rate) + guard).log()
    present = present.expand_as(attention)
    return ((kept + dropped) * present).sum() / present.sum()


def keep_rate(masks: Tensor, present: Tensor) -> Tensor:
    """Share of a graph's edges that a mask keeps, (..., E) to (...); masks are 0 off the edges."""
    return masks.sum(-1) / present.sum(-1)


def overlaps(masks: Tensor) -> tuple[Tensor, Tensor]:
    """How many items every two masks share, (B, K, N) to (B, K, K), and every mask has, (B, K)."""
    if kernels.usable(masks, "edge_masks"):
        from brio_core.kernels.edge_masks import Overlaps

        # Masks come from experts, whose axis leads in memory.
        both = Overlaps.apply(masks.transpose(0, 1))
        return both[..., :-1], both[..., -1]
    return masks @ masks.mT, masks.sum(-1)


def correlations(masks: Tensor, present: Tensor, guard: float = 1e-6) -> Tensor:
    """Correlation over present items of every two masks, (B, K, N) to (B, K, K).

    Masks are 0 where nothing is present. A mask without variance is uncorrelated with everything,
    itself included.
    """
    count = present.sum(-1)[:, None]
    shared, total = overlaps(masks)
    mean = total / count
    # Sums of zeros and ones are exact, so nothing is lost to cancellation.
    covariance = shared / count[..., None] - mean[..., :, None] * mean[..., None, :]
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
