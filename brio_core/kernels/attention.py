"""Graph attention of one head and graph in one program; no weight of a pair ever meets memory.

A program holds all senders of a few receivers at a time, so softmax and its gradient are computed
from the scores alone. Dropout draws the numbers of :func:`brio_core.system.randomness.uniform`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.mapping import Derivative, to_front
from brio_core.kernels.uniform import draw

ROWS = 16


@triton.jit
def _weights(
    receivers, senders, mask, key, row, column, graph, inside_fold, head, nodes, heads,
    probability, slope, DROP: tl.constexpr,
):  # fmt: skip
    """Attention of some receivers, what dropout multiplies it with, and LeakyReLU's slope."""
    inside = (row < nodes)[:, None] & (column < nodes)[None, :]
    first = graph.to(tl.int64) * nodes
    received = tl.load(receivers + (first + row) * heads + head, mask=row < nodes, other=0.0)
    sent = tl.load(senders + (first + column) * heads + head, mask=column < nodes, other=0.0)
    raw = received[:, None] + sent[None, :]
    bend = tl.where(raw > 0, 1.0, slope)
    place = (first + row[:, None]) * nodes + column[None, :]
    heard = tl.load(mask + place, mask=inside, other=0) != 0
    logits = tl.where(heard, raw * bend, -1.0e30)
    power = tl.exp(logits - tl.max(logits, 1)[:, None])
    attention = power / tl.sum(power, 1)[:, None]
    if DROP:
        position = (inside_fold * heads + head) * nodes + row[:, None]
        drawn = draw(position * nodes + column[None, :], key)
        kept = tl.where(drawn >= probability, 1.0 / (1.0 - probability), 0.0)
    else:
        kept = tl.zeros_like(attention) + 1.0
    return attention, kept, bend


@triton.jit
def _forward(
    receivers, senders, values, mask, keys, out, graphs_per_fold, nodes, heads, units,
    probability, slope,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    key = tl.load(keys + graph // graphs_per_fold).to(tl.uint32)
    column, unit = tl.arange(0, COLUMNS), tl.arange(0, UNITS)
    inside = (column < nodes)[:, None] & (unit < units)[None, :]
    first = graph.to(tl.int64) * nodes
    own = ((first + column[:, None]) * heads + head) * units + unit[None, :]
    value = tl.load(values + own, mask=inside, other=0.0)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        attention, kept, _ = _weights(
            receivers, senders, mask, key, row, column, graph, graph % graphs_per_fold, head,
            nodes, heads, probability, slope, DROP,
        )  # fmt: skip
        heard = tl.dot(attention * kept, value, input_precision=PRECISION)
        place = ((first + row[:, None]) * heads + head) * units + unit[None, :]
        tl.store(out + place, heard, mask=(row < nodes)[:, None] & (unit < units)[None, :])


@triton.jit
def _backward(
    receivers, senders, values, mask, keys, grad, to_receivers, to_senders, to_values,
    graphs_per_fold, nodes, heads, units, probability, slope,
    DROP: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    key = tl.load(keys + graph // graphs_per_fold).to(tl.uint32)
    column, unit = tl.arange(0, COLUMNS), tl.arange(0, UNITS)
    inside = (column < nodes)[:, None] & (unit < units)[None, :]
    first = graph.to(tl.int64) * nodes
    own = ((first + column[:, None]) * heads + head) * units + unit[None, :]
    value = tl.load(values + own, mask=inside, other=0.0)
    value_sum = tl.zeros((COLUMNS, UNITS), tl.float32)
    sender_sum = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, nodes, ROWS):
        row = start + tl.arange(0, ROWS)
        attention, kept, bend = _weights(
            receivers, senders, mask, key, row, column, graph, graph % graphs_per_fold, head,
            nodes, heads, probability, slope, DROP,
        )  # fmt: skip
        place = ((first + row[:, None]) * heads + head) * units + unit[None, :]
        # Zero in the padding, so that padded receivers add nothing to the sums.
        above = tl.load(
            grad + place, mask=(row < nodes)[:, None] & (unit < units)[None, :], other=0.0
        )
        through = tl.dot(above, tl.trans(value), input_precision=PRECISION) * kept
        inner = tl.sum(attention * through, 1)
        slopes = attention * (through - inner[:, None]) * bend
        tl.store(to_receivers + (first + row) * heads + head, tl.sum(slopes, 1), mask=row < nodes)
        sender_sum += tl.sum(slopes, 0)
        value_sum += tl.dot(tl.trans(attention * kept), above, input_precision=PRECISION)
    tl.store(to_senders + (first + column) * heads + head, sender_sum, mask=column < nodes)
    tl.store(to_values + own, value_sum, mask=inside)


def _launch(
    kernel, receivers, senders, values, mask, keys, probability: float, slope: float, *tensors
) -> None:
    nodes, heads, units = values.shape[-3:]
    graphs = values.numel() // (nodes * heads * units)
    columns = max(16, triton.next_power_of_2(nodes))
    exact = torch.get_float32_matmul_precision() == "highest"
    kernel[(graphs * heads,)](
        receivers, senders, values, mask, keys, *tensors,
        graphs // keys.numel(), nodes, heads, units, probability, slope,
        DROP=probability > 0, PRECISION="ieee" if exact else "tf32",
        ROWS=ROWS, COLUMNS=columns, UNITS=max(16, triton.next_power_of_2(units)),
        num_warps=min(16, max(4, columns // 32)),
    )  # fmt: skip


class GraphAttention(torch.autograd.Function):
    """Scores (*folds, B, P, H), values (..., P, H, D), mask (..., P, P) and key (*folds)."""

    @staticmethod
    def forward(receivers, senders, values, mask, key, probability, slope):
        tensors = [part.contiguous() for part in (receivers, senders, values, mask, key)]
        out = torch.empty_like(tensors[2])
        _launch(_forward, *tensors, probability, slope, out)
        return out

    @staticmethod
    def setup_context(ctx, inputs, output):
        *tensors, ctx.probability, ctx.slope = inputs
        ctx.save_for_backward(*tensors)

    @staticmethod
    def backward(ctx, grad):
        slopes = _GraphAttentionBackward.apply(*ctx.saved_tensors, grad, ctx.probability, ctx.slope)
        return *slopes, None, None, None, None

    @staticmethod
    def vmap(info, in_dims, *inputs):
        return GraphAttention.apply(*to_front(info, in_dims, inputs[:-2]), *inputs[-2:]), 0


class _GraphAttentionBackward(Derivative):
    @staticmethod
    def forward(receivers, senders, values, mask, key, grad, probability, slope):
        tensors = [part.contiguous() for part in (receivers, senders, values, mask, key, grad)]
        slopes = [torch.empty_like(part) for part in tensors[:3]]
        _launch(_backward, *tensors[:5], probability, slope, tensors[5], *slopes)
        return tuple(slopes)

    @staticmethod
    def vmap(info, in_dims, *inputs):
        front = to_front(info, in_dims, inputs[:-2])
        return _GraphAttentionBackward.apply(*front, *inputs[-2:]), (0, 0, 0)


def attend(
    receivers: Tensor,
    senders: Tensor,
    values: Tensor,
    mask: Tensor,
    key: Tensor,
    probability: float,
    slope: float,
) -> Tensor:
    """Attended values (B, P, H, D) from scores (B, P, H) of receivers and senders.

    ``key`` has its stream folded in; the mask lets every receiver hear itself.
    """
    return GraphAttention.apply(receivers, senders, values, mask, key, probability, slope)
