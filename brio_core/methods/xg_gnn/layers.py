"""Graphs learnt from series, the convolutions before them, and norms that know sites.

Regions are nearly alike to a graph that is learnt: its entries differ by less than one per cent at
first. TF32 rounds by a twentieth of that, so what learns graphs has exact products.

Convolutions along time with BatchNorms between them hold nothing that is not linear. Such a stack
is one convolution whose kernel is composed of all the others'. The variance of a response is a
quadratic form of the kernel in the second moments of windows, so BatchNorm's batch statistics need
no responses either. Only the last responses are ever made, with one product.
"""

from itertools import pairwise

import torch
from torch import Tensor, nn

from brio_core import kernels
from brio_core.methods.layers.perceptrons import row_linear
from brio_core.methods.layers.series import shifted
from brio_core.system.devices import float32_products


class RegionLinear(nn.Linear):
    """A linear layer of the regions of many scans, see :func:`row_linear`."""

    def forward(self, hidden: Tensor) -> Tensor:
        out = row_linear(hidden, self.weight)
        return out if self.bias is None else out + self.bias


class Constructor(nn.Module):
    """Self-attention of tokens (..., P, d); its output A is the factor of a learnt graph.

    Scores are scaled by the full width. Without biases: one of the keys would learn nothing.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.sent = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        layers = (self.query, self.sent, self.value)
        projected = [row_linear(tokens, layer.weight, exact=True) for layer in layers]
        scale = tokens.shape[-1] ** -0.5
        if kernels.usable(projected[0], "self_attention"):
            from brio_core.kernels.self_attention import SelfAttention

            return SelfAttention.apply(*projected, self.heads, scale)[0]
        query, sent, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for part in projected
        )
        attention = (query * scale @ sent.mT).softmax(-1)
        return (attention @ value).transpose(-2, -3).flatten(-2)


def learnt_graphs(factor: Tensor) -> Tensor:
    """M = A A^T of factors A (..., P, k)."""
    return row_linear(factor, factor, exact=True)


class Propagation(nn.Linear):
    """A linear layer of what regions (..., P, d) hear over the graph M = A A^T, A (..., P, k).

    ``released``: a region hears itself, times its row sum of M. ``mean``: ``D^-1 M X``; where M is
    uniform, all regions hear the same. ``mean+self``: both that and itself. D holds the rows'
    absolute sums: entries of M may be negative, so plain sums could vanish.
    """

    kinds = ("released", "mean", "mean+self")

    def __init__(self, before: int, after: int, kind: str, bias: bool = True) -> None:
        super().__init__(before, after, bias)
        self.kind = kind

    def forward(self, hidden: Tensor, factor: Tensor) -> Tensor:
        if self.kind == "released":
            sums = (factor * factor.sum(-2, keepdim=True)).sum(-1, keepdim=True)
            return torch.addcmul(self.bias, row_linear(hidden, self.weight), sums)
        # The factor has few columns, so all products are narrow, and so is what D divides.
        sums = learnt_graphs(factor).abs().sum(-1, keepdim=True)
        heard = (factor / (sums + 1e-6)) @ row_linear(factor.mT @ hidden, self.weight)
        if self.kind == "mean+self":
            heard = heard + row_linear(hidden, self.weight)
        return heard if self.bias is None else heard + self.bias


def variation_within(graphs: Tensor) -> Tensor:
    """Deviation of the entries of a graph (..., P, P) over their mean size, a mean over graphs."""
    entries = graphs.flatten(-2)
    return (entries.std(-1) / entries.abs().mean(-1)).mean()


def class_difference(graphs: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
    """Difference of class means in (0, 1), (S, P, P), and whether a site has both classes, (S,).

    Graphs are (S, n, P, P), labels (S, n). Magnitudes are standardised within each column.
    """
    positive = label.to(graphs.dtype)
    negative = 1 - positive
    counts = torch.stack([positive.sum(-1), negative.sum(-1)], -1)
    means = positive / counts[:, :1].clamp_min(1) - negative / counts[:, 1:].clamp_min(1)
    # A sum, not a matrix product: graphs differ by less than such a product may round off.
    difference = (means[..., None, None] * graphs).sum(1).abs()
    centred = difference - difference.mean(-2, keepdim=True)
    # The root of zero has no finite slope.
    spread = difference.var(-2, keepdim=True).clamp_min(1e-24).sqrt()
    return (centred / (spread + 1e-6)).sigmoid(), (counts > 0).all(-1)


def sparsity(difference: Tensor) -> Tensor:
    """Entropy of the rows' geometric means, (S,)."""
    level = (difference + 1e-10).log().mean(-1)
    return -(level.exp() * level).sum(-1)


def disagreement(difference: Tensor) -> Tensor:
    """One minus the soft Dice overlap of every pair of sites, (S, S).

    It is 0 on the diagonal only where differences are 0 or 1.
    """
    mass = difference.sum((-2, -1))
    # Many short products keep a GPU busy, one long product does not.
    rows = difference.transpose(0, 1)
    overlap = (rows @ rows.mT).sum(0)
    return 1 - 2 * overlap / (mass[:, None] + mass + 1e-8)


def window_moments(gram: Tensor, width: int, stride: int) -> Tensor:
    """Second moments (..., w, w) of windows, averaged over their places, from (..., T, T)."""
    blocks = gram.unfold(-2, width, stride).unfold(-2, width, stride)
    return blocks.diagonal(dim1=-4, dim2=-3).mean(-1)


class SiteNorm(nn.BatchNorm1d):
    """BatchNorm of (S, ..., d) that takes every site for a batch of its own.

    Running statistics are those that the sites would leave if they came one after another.
    """

    def forward(self, values: Tensor) -> Tensor:
        if not self.training:
            scale = self.weight * (self.running_var + self.eps).rsqrt()
            return values * scale + (self.bias - self.running_mean * scale)
        normed, mean, variance = self._normed(values)
        count = values[0].numel() // values.shape[-1]
        remember_in_turn(self.running_mean, mean, self.momentum)
        remember_in_turn(self.running_var, variance * (count / (count - 1)), self.momentum)
        self.num_batches_tracked.add_(len(values))
        return normed

    def _normed(self, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The result, and mean and variance (S, d) of every site."""
        if kernels.usable(values, "norm_relu"):
            from brio_core.kernels.norm_relu import NormRelu

            weight, bias = (part.expand(len(values), -1) for part in (self.weight, self.bias))
            no_key, all_rows, no_dropout = values.new_zeros((), dtype=torch.int64), None, 0.0
            options = (no_key, all_rows, no_dropout, self.eps, False)
            return NormRelu.apply(values, weight, bias, *options)
        axes = tuple(range(1, values.ndim - 1))
        mean = values.mean(axes, keepdim=True)
        centred = values - mean
        variance = centred.square().mean(axes, keepdim=True)
        normed = centred * (variance + self.eps).rsqrt() * self.weight + self.bias
        return normed, mean.flatten(0, -2), variance.flatten(0, -2)


def remember_in_turn(running: Tensor, statistics: Tensor, momentum: float) -> None:
    """Update a running statistic (d,) in place with those of sites (S, d), the last one last."""
    turns = torch.arange(len(statistics) - 1, -1, -1, device=running.device)
    weights = momentum * (1 - momentum) ** turns
    latest = (weights[:, None] * statistics.detach()).sum(0)
    running.mul_((1 - momentum) ** len(statistics)).add_(latest)


class KernelNorm(nn.Module):
    """BatchNorm as a change of the kernel (S, C, w) in front of it, every site on its own.

    Windows have mean zero. A shift would only move the mean that the next norm takes away.
    """

    def __init__(self, channels: int, momentum: float = 0.1, eps: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.eps = momentum, eps
        self.weight = nn.Parameter(torch.ones(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, kernel: Tensor, moments: Tensor | None, count: int) -> Tensor:
        """``moments`` (S, w, w) of ``count`` windows per site in training, none in evaluation."""
        variance = self.running_var
        if moments is not None:
            # Neighbouring frames are alike: in single precision a small variance could cancel.
            fine = kernel.double()
            variance = ((fine @ moments.double()) * fine).sum(-1).clamp_min(0).to(kernel.dtype)
            remember_in_turn(self.running_var, variance * (count / (count - 1)), self.momentum)
        return kernel * (self.weight * (variance + self.eps).rsqrt())[..., None]


class LinearConvolutions(nn.Module):
    """Convolution and BatchNorm in turn, the first with a stride, then a max-pool to some bins.

    Parameters
    ----------
    channels, kernels
        Of every convolution in turn; there is no padding.
    stride
        Of the first convolution; the others have 1.
    bins
        As in ``nn.AdaptiveMaxPool1d``: they overlap in one place if they do not divide the length.
    """

    def __init__(
        self, channels: tuple[int, ...], kernels: tuple[int, ...], stride: int, bins: int
    ) -> None:
        super().__init__()
        self.stride, self.bins = stride, bins
        self.convolutions = nn.ModuleList(
            nn.Conv1d(before, after, kernel, bias=False)
            for (before, after), kernel in zip(pairwise((1, *channels)), kernels)
        )
        self.norms = nn.ModuleList(KernelNorm(width) for width in channels)
        self.bias = nn.Parameter(torch.zeros(channels[-1]))

    def forward(self, series: Tensor, frames: Tensor) -> Tensor:
        """Pooled responses (S, n, P, C, bins) of series (S, n, P, T).

        Frames must have mean zero over regions. A series that ends after ``frames`` (S, n) gives
        what it would give without the rest; in training all have T.
        """
        flat = series.flatten(1, 2)
        kernel = self._kernel(flat)
        length = self._places(flat.shape[-1], kernel.shape[-1])
        operator = shifted(kernel, length, self.stride).flatten(-3, -2)
        responses = flat[..., : operator.shape[-1]] @ operator.mT
        responses = responses.view(*series.shape[:-1], -1, length)
        pooled = self._pool(responses, self._places(frames, kernel.shape[-1]))
        return pooled + self.bias[:, None]

    def _kernel(self, series: Tensor) -> Tensor:
        """The kernel (S, C, w) of the whole stack."""
        # Much of it cancels where a kernel responds to changes only.
        with float32_products(exact=True):
            gram = series.mT @ series / series.shape[1] if self.training else None
        composed = None
        for convolution, norm in zip(self.convolutions, self.norms):
            weight = convolution.weight
            if composed is None:
                composed = weight[:, 0][None]
            else:
                spread = shifted(composed, weight.shape[-1], self.stride)
                composed = weight.flatten(1) @ spread.flatten(-3, -2)
            width = composed.shape[-1]
            count = series.shape[1] * self._places(series.shape[-1], width)
            moments = None if gram is None else window_moments(gram, width, self.stride)
            composed = norm(composed, moments, count)
        return composed

    def _places(self, frames: int | Tensor, width: int) -> int | Tensor:
        return (frames - width) // self.stride + 1

    def _pool(self, responses: Tensor, lengths: Tensor) -> Tensor:
        """Largest response in every bin of the first ``lengths`` (S, n) places."""
        if kernels.usable(responses, "pooling"):
            from brio_core.kernels.pooling import MaxOfBins

            return MaxOfBins.apply(responses, lengths, self.bins)
        place = torch.arange(responses.shape[-1], device=responses.device)
        lengths = lengths[..., None, None, None]
        pooled = []
        for number in range(self.bins):
            first = number * lengths // self.bins
            end = ((number + 1) * lengths + self.bins - 1) // self.bins
            inside = (place >= first) & (place < end)
            pooled.append(responses.where(inside, -torch.inf).amax(-1))
        return torch.stack(pooled, -1)
