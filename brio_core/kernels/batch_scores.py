"""``w . relu(norm(V relu(norm(W relu(s_i + r_j)))))`` of listed edges, normed over a whole batch.

What lies between the layers is kept as what products round to: float16, unless they are exact. Its
rounding is as large as theirs. It stays below 65,504 while absolutes of a row of W, or of V, add up
to less than 75: of N numbers that are normalised none is above the root of N, 880 of 770,000. So do
gradients: they are divided by a bound, which is known before they are written.
"""

import torch

from brio_core.kernels.edge_back import backward
from brio_core.kernels.edge_hidden import forward
from brio_core.kernels.functions import Fused, factor
from brio_core.kernels.norm_linear import NormLinear


class BatchScores(Fused):
    """Sides (*F, B, P, D), W (*F, d, D), norm, V (*F, e, d), norm, w (*F, 1, e), lists (*F, B, .).

    A norm is its weight and bias. Behind the lists stand means and variances of both norms, which
    count if they are ``given``. Scores (*F, B, 2E) come out, those statistics, the number of edges
    (*F), and what the way back reads: nothing of use unless ``keep`` is set.
    """

    @staticmethod
    def run(
        sender, receiver, first, weight, bias, second, other_weight, other_bias, last,
        pairs, order, starts, mean, variance, other_mean, other_variance, given, epsilon, keep,
    ):  # fmt: skip
        no_key, present = pairs.new_zeros(weight.shape[:-1], dtype=torch.int64), pairs > 0
        sides = (sender, receiver, first, no_key, pairs, starts, 0.0)
        hidden, heard, _ = forward(*sides, keep, False)
        known = (mean, variance) if given else None
        layer = NormLinear(hidden, weight, bias, second, present, epsilon, known)
        middle = layer.forward(factor())
        known = (other_mean, other_variance) if given else None
        other = NormLinear(middle, other_weight, other_bias, last, present, epsilon, known)
        out = other.forward(sender.dtype).squeeze(-1)
        count = layer.sizes.count.view(weight.shape[:-1]).to(sender.dtype)
        found = (layer.mean, layer.variance, other.mean, other.variance)
        return out, *(one.clone() for one in found), count, hidden, heard, middle

    @staticmethod
    def keep(inputs, output):
        *_, given, epsilon, _ = inputs
        return *inputs[:9], *output[1:], *inputs[9:12], given, epsilon

    @staticmethod
    def slopes(
        grad, sender, receiver, first, weight, bias, second, other_weight, other_bias, last,
        mean, variance, other_mean, other_variance, count, hidden, heard, middle,
        pairs, order, starts, given, epsilon,
    ):  # fmt: skip
        # Statistics that are given have no slope: as if they were means of an endless number.
        count = (torch.full_like(count, torch.inf) if given else count)[..., None]
        present, one = pairs > 0, torch.ones_like(count[..., 0])
        known = (other_mean, other_variance)
        layer = NormLinear(middle, other_weight, other_bias, last, present, epsilon, known)
        peak = grad.abs().amax((-2, -1))
        above, unit, peak, *to_other = layer.slopes(grad, one, peak, count, one)
        layer = NormLinear(hidden, weight, bias, second, present, epsilon, (mean, variance))
        # Products with W must not be too large for float16 either.
        reach = first.abs().sum(-2).amax(-1).clamp_min(1)
        above, unit, _, *to_norm = layer.slopes(above, unit, peak, count, reach)
        scale = unit[..., None].expand(pairs.shape[:-1]).contiguous()
        lists = (pairs, order, starts, 0.0)
        *to_sides, to_first = backward(above, scale, sender, receiver, first, heard, *lists)
        return *to_sides, to_first, *to_norm, *to_other
