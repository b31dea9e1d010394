"""Random binary masks on listed edges from the scores of both directions, in one pass each way.

Draws the numbers of :func:`randomness.uniform`, and draws them again on the way back.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused
from brio_core.kernels.uniform import draw

BLOCK = 1024


@triton.jit
def _noisy(
    scores, bias, keys, starts, graph, place, graphs_per_weight, graphs_per_fold, p, e,
    GUMBEL: tl.constexpr,
):  # fmt: skip
    """Which places hold an edge, and the noisy logit there."""
    row = graph // graphs_per_fold * graphs_per_weight + graph % graphs_per_weight
    listed = place < tl.load(starts + row * (p + 1) + p) // 2
    there = tl.load(scores + graph * 2 * e + place, mask=listed, other=0.0)
    back = tl.load(scores + graph * 2 * e + e + place, mask=listed, other=0.0)
    logit = (there + back) * 0.5 + tl.load(bias + graph // graphs_per_weight)
    key = tl.load(keys + graph // graphs_per_fold).to(tl.uint32)
    drawn = draw(graph % graphs_per_fold * e + place, key)
    drawn = tl.maximum(drawn, 2.98023223876953125e-8)
    if GUMBEL:  # noqa: SIM108
        noise = -tl.log(-tl.log(drawn))
    else:
        noise = tl.log(drawn) - tl.log(1.0 - drawn)
    return listed, logit + noise


@triton.jit
def _forward(
    scores, bias, keys, starts, out, graphs_per_weight, graphs_per_fold, p, e,
    GUMBEL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    listed, noisy = _noisy(
        scores, bias, keys, starts, graph, place, graphs_per_weight, graphs_per_fold, p, e, GUMBEL
    )
    tl.store(out + graph * e + place, tl.where(listed & (noisy > 0), 1.0, 0.0), mask=place < e)


@triton.jit
def _backward(
    scores, bias, keys, starts, grad, to_scores, to_bias, graphs_per_weight, graphs_per_fold, p, e,
    temperature, GUMBEL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    listed, noisy = _noisy(
        scores, bias, keys, starts, graph, place, graphs_per_weight, graphs_per_fold, p, e, GUMBEL
    )
    soft = tl.sigmoid(noisy / temperature)
    above = tl.load(grad + graph * e + place, mask=place < e, other=0.0)
    above = tl.where(listed, above * soft * (1.0 - soft) / temperature, 0.0)
    tl.store(to_scores + graph * 2 * e + place, above * 0.5, mask=place < e)
    tl.store(to_scores + graph * 2 * e + e + place, above * 0.5, mask=place < e)
    tl.store(to_bias + graph * tl.num_programs(1) + tl.program_id(1), tl.sum(above, 0))


def _sizes(scores: Tensor, starts: Tensor) -> tuple[int, ...]:
    """Number of graphs, graphs per bias and per fold, P and E."""
    e, batch, p = scores.shape[-1], starts.shape[-2], starts.shape[-1] - 1
    graphs = scores.numel() // (2 * e)
    folds = starts.numel() // (batch * (p + 1))
    return graphs, batch, graphs // folds, p, e


class BinaryMasks(Fused):
    """Scores (*F, *K, B, 2, E), bias (*F, *K), keys (*F) and starts (*F, B, P + 1) to masks."""

    @staticmethod
    def run(scores, bias, keys, starts, gumbel, temperature):
        graphs, *sizes = _sizes(scores, starts)
        out = scores.new_empty(*scores.shape[:-2], scores.shape[-1])
        _forward[(graphs, triton.cdiv(scores.shape[-1], BLOCK))](
            scores, bias, keys, starts, out, *sizes, GUMBEL=gumbel, BLOCK=BLOCK
        )
        return out

    @staticmethod
    def slopes(grad, scores, bias, keys, starts, gumbel, temperature):
        graphs, *sizes = _sizes(scores, starts)
        blocks = triton.cdiv(scores.shape[-1], BLOCK)
        to_scores, to_bias = torch.empty_like(scores), scores.new_empty(graphs, blocks)
        _backward[(graphs, blocks)](
            scores, bias, keys, starts, grad, to_scores, to_bias, *sizes, temperature,
            GUMBEL=gumbel, BLOCK=BLOCK,
        )  # fmt: skip
        return to_scores, to_bias.view(*bias.shape, -1).sum(-1)
