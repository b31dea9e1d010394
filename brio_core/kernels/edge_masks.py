"""Random masks on listed edges, what they tell, and what those of several experts share."""

import torch
import triton
import triton.language as tl

from brio_core.kernels.edge_lists import number, own_graph
from brio_core.kernels.functions import Constant, Fused, power_of_2

BLOCK = 1024
# Places that a program reads at a time, and programs of a graph.
COMMON, PARTS = 128, 4


@triton.jit
def _relaxed(logits, bias, keys, graph, place, batch, experts, places, tiny, temperature, GUMBEL):
    """Relaxed samples of one expert's edges in one graph."""
    owner = graph // batch
    inside = place < places
    logit = tl.load(logits + graph * places + place, mask=inside, other=0.0)
    logit += tl.load(bias + owner)
    first = graph % (experts * batch) * places
    drawn = number(first + place, tl.load(keys + owner // experts))
    drawn = tl.maximum(drawn, tiny)
    noise = -tl.log(-tl.log(drawn)) if GUMBEL else tl.log(drawn / (1.0 - drawn))
    return 1.0 / (1.0 + tl.exp(-((logit + noise) / temperature)))


@triton.jit
def _listed(starts, graph, place, batch, experts, p):
    """Which places of a graph hold an edge: the first ones do."""
    lists = graph // (batch * experts) * batch + graph % batch
    return place < tl.load(starts + lists * (p + 1) + p) // 2


@triton.jit
def _masks(
    logits, bias, keys, starts, out, batch, experts, places, p, tiny, temperature,
    GUMBEL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    soft = _relaxed(
        logits, bias, keys, graph, place, batch, experts, places, tiny, temperature, GUMBEL
    )
    kept = ((soft > 0.5) & _listed(starts, graph, place, batch, experts, p)).to(tl.float32)
    # What is no number stays none.
    kept = tl.where(soft == soft, kept, soft)
    tl.store(out + graph * places + place, kept, mask=place < places)


@triton.jit
def _masks_back(
    grad, logits, bias, keys, starts, out, sums, batch, experts, places, p, tiny, temperature,
    GUMBEL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < places
    soft = _relaxed(
        logits, bias, keys, graph, place, batch, experts, places, tiny, temperature, GUMBEL
    )
    listed = _listed(starts, graph, place, batch, experts, p)
    above = tl.load(grad + graph * places + place, mask=inside & listed, other=0.0)
    slope = above * soft * (1.0 - soft) / temperature
    tl.store(out + graph * places + place, slope, mask=inside)
    tl.store(sums + graph * tl.num_programs(1) + tl.program_id(1), tl.sum(slope, 0))


class BinaryMasks(Fused):
    """Logits (*F, K, B, E), bias (*F, K), keys (*F) with their stream, starts (*F, B, P + 1).

    Ones and zeros (*F, K, B, E), by Gumbel or logistic noise; zero in empty places.
    """

    @staticmethod
    def _launch(kernel, starts, logits, more, tiny, temperature, gumbel):
        *_, experts, batch, places = logits.shape
        graphs = logits.numel() // places
        sizes = (batch, experts, places, starts.shape[-1] - 1, tiny, temperature)
        kernel[(graphs, triton.cdiv(places, BLOCK))](*more, *sizes, GUMBEL=gumbel, BLOCK=BLOCK)

    @classmethod
    def run(cls, logits, bias, keys, starts, *options):
        out = torch.empty_like(logits)
        cls._launch(_masks, starts, logits, (logits, bias, keys, starts, out), *options)
        return out

    @staticmethod
    def slopes(grad, logits, bias, keys, starts, *options):
        out = torch.empty_like(logits)
        sums = logits.new_empty(*logits.shape[:-1], triton.cdiv(logits.shape[-1], BLOCK))
        given = (grad, logits, bias, keys, starts, out, sums)
        BinaryMasks._launch(_masks_back, starts, logits, given, *options)
        # Summing parts in a fixed order keeps the result the same in every run.
        return out, sums.sum((-2, -1))


@triton.jit
def _fixed(
    logits, bias, starts, out, batch, experts, places, p, threshold, BLOCK: tl.constexpr
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    logit = tl.load(logits + graph * places + place, mask=place < places, other=0.0)
    kept = logit + tl.load(bias + graph // batch) > threshold
    kept &= _listed(starts, graph, place, batch, experts, p)
    tl.store(out + graph * places + place, kept.to(tl.float32), mask=place < places)


class FixedMasks(Constant):
    """Ones where logits and bias, as of ``BinaryMasks``, are above a threshold."""

    @staticmethod
    def run(logits, bias, starts, threshold):
        *_, experts, batch, places = logits.shape
        out = torch.empty_like(logits)
        _fixed[(logits.numel() // places, triton.cdiv(places, BLOCK))](
            logits, bias, starts, out, batch, experts, places, starts.shape[-1] - 1, threshold,
            BLOCK=BLOCK,
        )  # fmt: skip
        return out


@triton.jit
def _overlaps(
    masks, out, batch, experts, places, STEP: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    graph, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    expert = tl.arange(0, ROWS)
    rows = own_graph(graph, expert, experts, batch) * places
    total = tl.zeros((ROWS, ROWS), tl.float32)
    for first in range(part * STEP, places, parts * STEP):
        place = first + tl.arange(0, STEP)
        inside = (expert < experts)[:, None] & (place < places)[None, :]
        value = tl.load(masks + rows[:, None] + place[None, :], mask=inside, other=0.0)
        # A column of ones beside the masks gives their sums.
        other = tl.where((expert == experts)[:, None], 1.0, value)
        # Ones and zeros are exact in any type.
        total = tl.dot(value.to(tl.float16), tl.trans(other.to(tl.float16)), total)
    target = (graph * parts + part) * experts * (experts + 1)
    target += expert[:, None] * (experts + 1) + expert[None, :]
    wanted = (expert < experts)[:, None] & (expert <= experts)[None, :]
    tl.store(out + target, total, mask=wanted)


@triton.jit
def _overlaps_back(
    grad, masks, out, batch, experts, places, BLOCK: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    expert, place = tl.arange(0, ROWS), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    known, inside = expert < experts, place < places
    grad += graph * experts * (experts + 1)
    own = tl.load(grad + expert * (experts + 1) + experts, mask=known, other=0.0)
    total = tl.zeros((ROWS, BLOCK), tl.float32) + own[:, None]
    for other in range(experts):
        rows = own_graph(graph, other, experts, batch) * places
        value = tl.load(masks + rows + place, mask=inside, other=0.0)
        factor = tl.load(grad + expert * (experts + 1) + other, mask=known, other=0.0)
        factor += tl.load(grad + other * (experts + 1) + expert, mask=known, other=0.0)
        total += factor[:, None] * value[None, :]
    target = own_graph(graph, expert, experts, batch) * places
    target = out + target[:, None] + place[None, :]
    tl.store(target, total, mask=known[:, None] & inside[None, :])


class Overlaps(Fused):
    """Masks of ones and zeros (*F, K, B, E) to what any two share, and their sums behind it.

    Gives (*F, B, K, K + 1).
    """

    @staticmethod
    def run(masks):
        *lead, experts, batch, places = masks.shape
        out = masks.new_empty(*lead, batch, PARTS, experts, experts + 1)
        _overlaps[(masks.numel() // (experts * places), PARTS)](
            masks, out, batch, experts, places, STEP=COMMON, ROWS=max(16, power_of_2(experts + 1)),
        )  # fmt: skip
        return out.sum(-3)

    @staticmethod
    def slopes(grad, masks):
        *_, experts, batch, places = masks.shape
        out = torch.empty_like(masks)
        _overlaps_back[(masks.numel() // (experts * places), triton.cdiv(places, COMMON))](
            grad, masks, out, batch, experts, places, BLOCK=COMMON, ROWS=power_of_2(experts)
        )
        return out


@triton.jit
def _attention(scores, keys, out, count, tiny, BLOCK: tl.constexpr):
    place, fold = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1)
    offset, inside = fold.to(tl.int64) * count + place, place < count
    drawn = tl.maximum(number(place, tl.load(keys + fold)), tiny)
    noisy = tl.load(scores + offset, mask=inside, other=0.0) + tl.log(drawn / (1.0 - drawn))
    tl.store(out + offset, 1.0 / (1.0 + tl.exp(-noisy)), mask=inside)


class Attention(Fused):
    """``sigmoid(scores + logistic noise)`` of scores (*F, ...) and keys (*F)."""

    @staticmethod
    def run(scores, keys, tiny):
        out, count = torch.empty_like(scores), scores.numel() // keys.numel()
        grid = (triton.cdiv(count, BLOCK), keys.numel())
        _attention[grid](scores, keys, out, count, tiny, BLOCK=BLOCK)
        return out

    @staticmethod
    def keep(inputs, output):
        return (output,)

    @staticmethod
    def slopes(grad, out):
        return torch.ops.aten.sigmoid_backward(grad, out)


@triton.jit
def _divergence(
    attention, present, out, sides, places, rate, guard, STEP: tl.constexpr
):  # fmt: skip
    """The sum over some edges of one graph."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * STEP + tl.arange(0, STEP)
    inside = place < places
    value = tl.load(attention + row * places + place, mask=inside, other=rate)
    counts = tl.load(present + row // sides * places + place, mask=inside, other=0.0)
    total = value * tl.log(value / rate + guard)
    total += (1.0 - value) * tl.log((1.0 - value) / (1.0 - rate) + guard)
    tl.store(out + row * tl.num_programs(1) + tl.program_id(1), tl.sum(total * counts, 0))


@triton.jit
def _divergence_back(
    grad, attention, present, out, parts, sides, places, rate, guard, STEP: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * STEP + tl.arange(0, STEP)
    inside = place < places
    value = tl.load(attention + row * places + place, mask=inside, other=rate)
    counts = tl.load(present + row // sides * places + place, mask=inside, other=0.0)
    kept, dropped = value / rate, (1.0 - value) / (1.0 - rate)
    slope = tl.log(kept + guard) + kept / (kept + guard)
    slope -= tl.log(dropped + guard) + dropped / (dropped + guard)
    slope *= counts * tl.load(grad + row * parts + tl.program_id(1))
    tl.store(out + row * places + place, slope, mask=inside)


class Divergence(Fused):
    """Sums of KL of Bernoulli(attention) from Bernoulli(rate) over parts of the present edges.

    Attention (*F, B, S, E) and present (*F, B, 1, E) give (*F, B, S, parts).
    """

    @staticmethod
    def run(attention, present, rate, guard):
        places = attention.shape[-1]
        out = attention.new_empty(*attention.shape[:-1], triton.cdiv(places, BLOCK))
        _divergence[(attention.numel() // places, out.shape[-1])](
            attention, present, out, attention.shape[-2], places, rate, guard, STEP=BLOCK
        )
        return out

    @staticmethod
    def slopes(grad, attention, present, rate, guard):
        out, places = torch.empty_like(attention), attention.shape[-1]
        _divergence_back[(attention.numel() // places, grad.shape[-1])](
            grad, attention, present, out, grad.shape[-1], attention.shape[-2], places, rate, guard,
            STEP=BLOCK,
        )  # fmt: skip
        return out
