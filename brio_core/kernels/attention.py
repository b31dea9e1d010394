"""Graph attention of one head and graph in one program; no weight of a pair ever meets memory.

A program holds all senders of a few receivers at a time, so softmax and its gradient are computed
from the scores alone. Dropout draws the numbers of :func:`brio_core.system.randomness.uniform`.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, power_of_2
from brio_core.kernels.uniform import keeps


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
        kept = keeps(position * nodes + column[None, :], key, probability)
        kept = tl.where(kept, 1.0 / (1.0 - probability), 0.0)
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


def _launch(kernel, inputs: tuple, probability: float, slope: float, *tensors: Tensor) -> None:
    _, _, values, _, keys = inputs
    nodes, heads, units = values.shape[-3:]
    graphs = values.numel() // (nodes * heads * units)
    exact = torch.get_float32_matmul_precision() == "highest"
    # A tile has 16 receivers and all senders of a graph.
    columns = max(16, power_of_2(nodes))
    kernel[(graphs * heads,)](
        *inputs, *tensors, graphs // keys.numel(), nodes, heads, units, probability, slope,
        DROP=probability > 0, PRECISION="ieee" if exact else "tf32",
        ROWS=16, COLUMNS=columns, UNITS=max(16, power_of_2(units)),
        num_warps=min(16, max(4, columns // 32)),
    )  # fmt: skip


class GraphAttention(Fused):
    """Scores (*folds, B, P, H), values (..., P, H, D), mask (..., P, P) and key (*folds).

    Gives attended values (..., P, H, D). The key has its stream folded in; the mask lets every
    receiver hear itself.
    """

    @staticmethod
    def run(receivers, senders, values, mask, key, probability, slope):
        out = torch.empty_like(values)
        _launch(_forward, (receivers, senders, values, mask, key), probability, slope, out)
        return out

    @staticmethod
    def slopes(grad, receivers, senders, values, mask, key, probability, slope):
        slopes = tuple(torch.empty_like(part) for part in (receivers, senders, values))
        inputs = (receivers, senders, values, mask, key)
        _launch(_backward, inputs, probability, slope, grad, *slopes)
        return slopes
