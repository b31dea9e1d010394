"""Graph attention of a head; no weight of a pair ever meets memory.

A program of one warp has some receivers of a graph (on the way back: some senders) and goes through
all nodes at their other end. Whom a receiver hears are bits of words, which all heads share. Scores
are sums of float32 products. Products with weights take half-precision numbers: their 11 bits are
those of TF32, and each head's numbers are divided by its largest first, so none is out of range.
Dropout draws the numbers of :func:`brio_core.system.randomness.uniform`.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.functions import Fused, exact, power_of_2
from brio_core.kernels.uniform import keeps

# Receivers of a program forward, and at a time backward; senders are as many as bits of a word.
FORWARD = BACKWARD = {"ROWS": 16, "num_stages": 1}
BITS = tl.constexpr(32)
# Nodes of a program that packs words, and numbers at a time of one that copies a head.
PACKED, COPIED = 128, 2048
LOG2_E, FAR = tl.constexpr(1.4426950408889634), tl.constexpr(-1.0e30)


@triton.jit
def _pack(mask, words, NODES: tl.constexpr, ROWS: tl.constexpr):
    """Bits of 32 senders for some receivers: words are (graphs, senders / 32, receivers)."""
    graph, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    row, bit = tl.program_id(2) * ROWS + tl.arange(0, ROWS), tl.arange(0, BITS)
    column = part * BITS + bit
    inside = (row < NODES)[:, None] & (column < NODES)[None, :]
    place = graph * NODES * NODES + (row[:, None] * NODES + column[None, :])
    heard = tl.load(mask + place, mask=inside, other=0) != 0
    words += (graph * tl.num_programs(1) + part) * NODES
    tl.store(words + row, tl.sum(heard.to(tl.int32) << bit[None, :], 1), mask=row < NODES)


@triton.jit
def _numbers(
    source, pair, row, heads, NODES: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr
):  # fmt: skip
    """One head of some nodes, zero outside, and where it is."""
    unit = tl.arange(0, UNITS)
    node = pair // heads * NODES + row
    place = (node * heads + pair % heads)[:, None] * WIDTH + unit[None, :]
    inside = (row < NODES)[:, None] & (unit < WIDTH)[None, :]
    return tl.load(source + place, mask=inside, other=0.0), place, inside


@triton.jit
def _copy(
    source, copies, tops, first, second, to_first, to_second, scale, batch, heads,
    NODES: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    BACK: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    """Copy a head divided by its largest number, and make sums: forward these are scores.

    On the way back it is what softmax subtracts: the copied gradient times the output.
    """
    pair, unit = tl.program_id(0).to(tl.int64), tl.arange(0, UNITS)
    largest = 0.0
    for start in range(0, NODES, ROWS):
        row = start + tl.arange(0, ROWS)
        value = _numbers(source, pair, row, heads, NODES, WIDTH, UNITS)[0]
        largest = tl.maximum(largest, tl.max(tl.max(tl.abs(value), 1), 0))
    largest = 1.0 if EXACT else tl.maximum(largest, 1.0e-30)
    if BACK:
        scale = scale / tl.load(second + pair)
    else:
        vector = (pair // heads // batch * heads + pair % heads) * WIDTH + unit
        one = tl.load(first + vector, mask=unit < WIDTH, other=0.0) * LOG2_E
        other = tl.load(second + vector, mask=unit < WIDTH, other=0.0) * LOG2_E
    tl.store(tops + pair, largest)
    for start in range(0, NODES, ROWS):
        row = start + tl.arange(0, ROWS)
        value = _numbers(source, pair, row, heads, NODES, WIDTH, UNITS)[0]
        copy, inside = (value / largest).to(copies.dtype.element_ty), row < NODES
        place = (pair * NODES + row)[:, None] * UNITS + unit[None, :]
        tl.store(copies + place, copy, mask=inside[:, None])
        if BACK:
            out = _numbers(first, pair, row, heads, NODES, WIDTH, UNITS)[0]
            inner = tl.sum(copy.to(tl.float32) * out, 1) * scale
            tl.store(to_first + pair * NODES + row, inner, mask=inside)
        else:
            here, there = tl.sum(value * one[None, :], 1), tl.sum(value * other[None, :], 1)
            tl.store(to_first + pair * NODES + row, here, mask=inside)
            tl.store(to_second + pair * NODES + row, there, mask=inside)


@triton.jit
def _sums(first, second, ROWS: tl.constexpr, COLUMNS: tl.constexpr, EXACT: tl.constexpr):
    """Scores of all pairs."""
    total = first[:, None] + second[None, :]
    if not EXACT:
        # A product of zeros changes no number. It puts them where the next product wants them.
        zeros = tl.zeros((ROWS, 16), tl.float16), tl.zeros((16, COLUMNS), tl.float16)
        total = tl.dot(zeros[0], zeros[1], total)
    return total


@triton.jit
def _forward(
    received, sent, copies, tops, words, keys, out, logs, batch, heads, rate, slope,
    NODES: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    DROP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (NODES + ROWS - 1) // ROWS
    parts: tl.constexpr = (NODES + BITS - 1) // BITS
    pair = (tl.program_id(0) // blocks).to(tl.int64)
    graph, unit, bit = pair // heads, tl.arange(0, UNITS), tl.arange(0, BITS)
    row = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    own = tl.load(received + pair * NODES + row, mask=row < NODES, other=0.0)
    key = tl.load(keys + graph // batch).to(tl.uint32)
    drawn = ((pair % (batch * heads)).to(tl.int32) * NODES + row) * NODES
    top, total = tl.full((ROWS,), FAR, tl.float32), tl.zeros((ROWS,), tl.float32)
    result = tl.zeros((ROWS, UNITS), tl.float32)
    for part in range(parts):
        column = part * BITS + bit
        word = tl.load(words + (graph * parts + part) * NODES + row, mask=row < NODES, other=0)
        other = tl.load(sent + pair * NODES + column, mask=column < NODES, other=0.0)
        raw = _sums(own, other, ROWS, BITS, EXACT)
        heard = (word[:, None] & (1 << bit)[None, :]) != 0
        logit = tl.where(heard, tl.where(raw > 0, raw, raw * slope), FAR)
        higher = tl.maximum(top, tl.max(logit, 1))
        power, shrink = tl.exp2(logit - higher[:, None]), tl.exp2(top - higher)
        total = total * shrink + tl.sum(power, 1)
        top = higher
        if DROP:
            power = tl.where(keeps(drawn[:, None] + column[None, :], key, rate), power, 0.0)
        place = copies + (pair * NODES + column)[:, None] * UNITS + unit[None, :]
        value = tl.load(place, mask=(column < NODES)[:, None], other=0.0)
        result *= shrink[:, None]
        result = tl.dot(power.to(value.dtype), value, result, input_precision="ieee")
    result *= (tl.load(tops + pair) / (1.0 - rate) / total)[:, None]
    tl.store(logs + pair * NODES + row, top + tl.log2(total), mask=row < NODES)
    place = ((graph * NODES + row) * heads + pair % heads)[:, None] * WIDTH + unit[None, :]
    tl.store(out + place, result, mask=(row < NODES)[:, None] & (unit < WIDTH)[None, :])


@triton.jit
def _backward(
    received, sent, copies, tops, words, keys, grads, grad_tops, logs, inners, sender,
    to_receivers, to_senders, to_values, batch, heads, rate, slope,
    NODES: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
    DROP: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    blocks: tl.constexpr = (NODES + BITS - 1) // BITS
    pair, block = (tl.program_id(0) // blocks).to(tl.int64), tl.program_id(0) % blocks
    graph, unit, bit = pair // heads, tl.arange(0, UNITS), tl.arange(0, BITS)
    column = block * BITS + bit
    to_receivers += (pair * blocks + block) * NODES
    other = tl.load(sent + pair * NODES + column, mask=column < NODES, other=0.0)
    place = (pair * NODES + column)[:, None] * UNITS + unit[None, :]
    value = tl.load(copies + place, mask=(column < NODES)[:, None], other=0.0)
    key = tl.load(keys + graph // batch).to(tl.uint32)
    drawn = (pair % (batch * heads)).to(tl.int32) * NODES
    scale = tl.load(grad_tops + pair) / (1.0 - rate)
    factor = scale * tl.load(tops + pair)
    value_sum, sender_sum = tl.zeros((BITS, UNITS), tl.float32), tl.zeros((BITS,), tl.float32)
    for start in range(0, NODES, ROWS):
        row = start + tl.arange(0, ROWS)
        here, inside = pair * NODES + row, row < NODES
        own = tl.load(received + here, mask=inside, other=0.0)
        log = tl.load(logs + here, mask=inside, other=0.0)
        inner = tl.load(inners + here, mask=inside, other=0.0)
        word = tl.load(words + (graph * blocks + block) * NODES + row, mask=inside, other=0)
        wide = here[:, None] * UNITS + unit[None, :]
        above = tl.load(grads + wide, mask=inside[:, None], other=0.0)
        through = tl.dot(value, tl.trans(above), input_precision="ieee")
        raw = _sums(other, own, BITS, ROWS, EXACT)
        bend = tl.where(raw > 0, 1.0, slope)
        heard = (word[None, :] & (1 << bit)[:, None]) != 0
        weight = tl.exp2(tl.where(heard, raw * bend - log[None, :], FAR))
        dropped = weight
        if DROP:
            kept = keeps((drawn + row)[None, :] * NODES + column[:, None], key, rate)
            through, dropped = tl.where(kept, through, 0.0), tl.where(kept, weight, 0.0)
        slopes = weight * bend * (through - inner[None, :])
        sender_sum += tl.sum(slopes, 1)
        tl.store(to_receivers + row, tl.sum(slopes, 0) * factor, mask=inside)
        value_sum = tl.dot(dropped.to(above.dtype), above, value_sum, input_precision="ieee")
    sender_sum *= factor
    tl.store(to_senders + pair * NODES + column, sender_sum, mask=column < NODES)
    vector = (graph // batch * heads + pair % heads) * WIDTH + unit
    along = tl.load(sender + vector, mask=unit < WIDTH, other=0.0)
    value_sum = value_sum * scale + sender_sum[:, None] * along[None, :]
    place = ((graph * NODES + column) * heads + pair % heads)[:, None] * WIDTH + unit[None, :]
    tl.store(to_values + place, value_sum, mask=(column < NODES)[:, None] & (unit < WIDTH)[None, :])


@triton.jit
def _finish(
    values, receiver, to_receivers, to_senders, to_values, to_receiver, to_sender, batch, heads,
    NODES: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Add the receivers' part to the gradient of values, and make those of both vectors."""
    blocks: tl.constexpr = (NODES + BITS - 1) // BITS
    pair, unit = tl.program_id(0).to(tl.int64), tl.arange(0, UNITS)
    vector = (pair // heads // batch * heads + pair % heads) * WIDTH + unit
    along = tl.load(receiver + vector, mask=unit < WIDTH, other=0.0)
    first, second = tl.zeros((UNITS,), tl.float32), tl.zeros((UNITS,), tl.float32)
    for start in range(0, NODES, ROWS):
        row = start + tl.arange(0, ROWS)
        here = tl.zeros((ROWS,), tl.float32)
        for block in range(blocks):
            part = to_receivers + (pair * blocks + block) * NODES
            here += tl.load(part + row, mask=row < NODES, other=0.0)
        there = tl.load(to_senders + pair * NODES + row, mask=row < NODES, other=0.0)
        value = _numbers(values, pair, row, heads, NODES, WIDTH, UNITS)[0]
        first += tl.sum(here[:, None] * value, 0)
        second += tl.sum(there[:, None] * value, 0)
        slope, place, inside = _numbers(to_values, pair, row, heads, NODES, WIDTH, UNITS)
        tl.store(to_values + place, slope + here[:, None] * along[None, :], mask=inside)
    tl.store(to_receiver + pair * WIDTH + unit, first, mask=unit < WIDTH)
    tl.store(to_sender + pair * WIDTH + unit, second, mask=unit < WIDTH)


class _Sizes:
    """Sizes of values (*folds, B, P, H, D), and how kernels are started on them."""

    def __init__(self, values: Tensor, key: Tensor, exact: bool) -> None:
        *self.graphs, self.nodes, self.heads, self.width = values.shape
        self.exact, self.units = exact, max(16, power_of_2(self.width))
        self.pairs = values.numel() // (self.nodes * self.width)
        self.batch = self.pairs // (self.heads * key.numel())
        self.parts = triton.cdiv(self.nodes, BITS.value)

    def head(self, values: Tensor, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return values.new_empty(*self.graphs, self.heads, *shape, dtype=dtype)

    def launch(self, kernel: Any, programs: int, *inputs: Any, warps: int = 0, **options) -> None:
        # One warp meets no barrier; a wide head has too many numbers for it.
        options = {"num_warps": warps or max(1, self.units // 32), **options}
        sizes = {"NODES": self.nodes, "WIDTH": self.width, "UNITS": self.units}
        kernel[(self.pairs * programs,)](*inputs, **sizes, **options)

    def copy(self, *inputs: Any, scale: float = 1.0, back: bool = False) -> None:
        rows = min(max(16, COPIED // self.units), power_of_2(self.nodes))
        inputs = (*inputs, scale, self.batch, self.heads)
        self.launch(_copy, 1, *inputs, warps=4, ROWS=rows, BACK=back, EXACT=self.exact)


class GraphAttention(Fused):
    """Values (*folds, B, P, H, D), vectors (*folds, H, D), mask (..., P, P) and key (*folds).

    Gives attended values (..., P, H, D), and what the way back reads. The vectors are those of
    receivers and senders. The key has its stream folded in; all receivers hear themselves.
    """

    @staticmethod
    def run(values, receiver, sender, mask, key, probability, slope):
        sizes = _Sizes(values, key, exact())
        nodes, out = sizes.nodes, torch.empty_like(values)
        words = mask.new_empty(*sizes.graphs, sizes.parts, nodes, dtype=torch.int32)
        grid = (sizes.pairs // sizes.heads, sizes.parts, triton.cdiv(nodes, PACKED))
        _pack[grid](mask, words, NODES=nodes, ROWS=PACKED)
        half = torch.float32 if sizes.exact else torch.float16
        copies, tops = sizes.head(values, nodes, sizes.units, dtype=half), sizes.head(values)
        received, sent, logs = (sizes.head(values, nodes) for _ in range(3))
        sizes.copy(values, copies, tops, receiver, sender, received, sent)
        sizes.launch(
            _forward, triton.cdiv(nodes, FORWARD["ROWS"]), received, sent, copies, tops, words,
            key, out, logs, sizes.batch, sizes.heads, probability, slope,
            DROP=probability > 0, EXACT=sizes.exact, **FORWARD,
        )  # fmt: skip
        return out, received, sent, copies, tops, words, logs

    @staticmethod
    def keep(inputs, output):
        values, receiver, sender, _, key, probability, slope = inputs
        return values, receiver, sender, key, *output, probability, slope

    @staticmethod
    def slopes(
        grad, values, receiver, sender, key, out, received, sent, copies, tops, words, logs,
        probability, slope,
    ):  # fmt: skip
        sizes = _Sizes(values, key, copies.dtype == torch.float32)
        nodes, width = sizes.nodes, sizes.width
        grads, to_values = torch.empty_like(copies), torch.empty_like(values)
        grad_tops, inners, to_senders = (torch.empty_like(part) for part in (tops, logs, logs))
        inputs = (grad, grads, grad_tops, out, tops, inners, inners)
        sizes.copy(*inputs, scale=1.0 - probability, back=True)
        to_receivers = sizes.head(values, sizes.parts, nodes)
        sizes.launch(
            _backward, sizes.parts, received, sent, copies, tops, words, key, grads, grad_tops,
            logs, inners, sender, to_receivers, to_senders, to_values,
            sizes.batch, sizes.heads, probability, slope,
            DROP=probability > 0, EXACT=sizes.exact, **BACKWARD,
        )  # fmt: skip
        vectors = [sizes.head(values, width) for _ in range(2)]
        sizes.launch(
            _finish, 1, values, receiver, to_receivers, to_senders, to_values, *vectors,
            sizes.batch, sizes.heads, warps=4, ROWS=64,
        )  # fmt: skip
        # Sums in double precision do not show their order, which torch chooses by how many folds.
        return to_values, *(part.sum(-3, dtype=torch.float64).float() for part in vectors)
