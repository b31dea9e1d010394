"""A layer of several GINs side by side, on graphs that differ in what each of them keeps.

``relu((1 + eps) x_i + sum_j A_ij x_j + b)`` for graphs of ones and zeros, which stand in bytes:
a quarter of the memory, and products with them are exact. Backward, what an edge gets goes to its
place in the list right away, and no dense gradient of a graph is ever written.
"""

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Constant, Fused, exact, power_of_2

# Rows of a graph start where memory is aligned: their length is rounded up to so many numbers.
ALIGNED = 32
# Nodes that a program makes, nodes that it reads at a time, units, warps, and loads under way.
TO_NODES = {"ROWS": 128, "STEP": 32, "UNITS": 64, "num_warps": 4, "num_stages": 3}
# The same of edges' gradients, between two groups of nodes.
TO_EDGES = {"ROWS": 64, "STEP": 32, "UNITS": 64, "num_warps": 4, "num_stages": 1}
# With exact products less fits into registers.
EXACT = {"ROWS": 64, "STEP": 32, "UNITS": 32}
# Numbers in a tile of a graph that is written.
TILE = 1024
# Empty places of a list that are filled at a time.
FILL = tl.constexpr(1024)


@triton.jit
def _graphs(
    slots, masks, out, kept, batch, experts, places, p: tl.constexpr, WIDTH: tl.constexpr,
    MASKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some rows of the graphs that all experts see of one subject; the lists are read once."""
    graph = tl.program_id(0).to(tl.int64)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < p)[:, None] & (column < p)[None, :]
    place = (graph * p + row)[:, None] * p + column[None, :]
    slot = tl.load(slots + place, mask=inside, other=places)
    listed = slot < places
    stored = (row < p)[:, None] & (column < WIDTH)[None, :]
    for expert in range(experts):
        own = (graph // batch * experts + expert) * batch + graph % batch
        if MASKED:
            there = tl.load(masks + own * places + slot, mask=listed, other=0.0) > 0
        else:
            there = listed
        there = there.to(tl.int8)
        tl.store(out + (own * p + row)[:, None] * WIDTH + column[None, :], there, mask=stored)
        tl.store(kept + own * p + row, tl.max(there.to(tl.int32), 1).to(tl.float32), mask=row < p)


class Graphs(Constant):
    """Slots (*F, B, P * P) and masks (*F, K, B, E), or None for K = 1 and all edges.

    Gives bytes (*F, K, B, P, W), whose last columns are empty, and which nodes have an edge
    (*F, K, B, P).
    """

    @staticmethod
    def run(slots, masks, places, p):
        experts = 1 if masks is None else masks.shape[-3]
        lead = (*slots.shape[:-2], experts, slots.shape[-2], p)
        width = triton.cdiv(p, ALIGNED) * ALIGNED
        out = torch.empty(*lead, width, dtype=torch.int8, device=slots.device)
        kept = torch.empty(lead, dtype=torch.float32, device=slots.device)
        columns = power_of_2(width)
        rows = max(1, TILE // columns)
        # What is not read may point anywhere.
        masks, masked = (kept, False) if masks is None else (masks, True)
        _graphs[(slots.numel() // (p * p), triton.cdiv(p, rows))](
            slots, masks, out, kept, slots.shape[-2], experts, places, p,
            WIDTH=width, MASKED=masked, ROWS=rows, COLUMNS=columns,
        )  # fmt: skip
        return out, kept


@triton.jit
def _whose(batch, experts, p, d: tl.constexpr, BESIDE: tl.constexpr):
    """A program's graph, its fold and expert, and where its nodes begin and how far apart they are.

    The experts' values of a node may stand side by side.
    """
    graph = tl.program_id(0).to(tl.int64)
    owner = graph // batch
    if BESIDE:
        row = owner // experts * batch + graph % batch
        start, stride = (row * p * experts + owner % experts) * d, experts * d
    else:
        start, stride = graph * p * d, d
    return graph, owner, start, stride


@triton.jit
def _part(p, d: tl.constexpr, ROWS: tl.constexpr, UNITS: tl.constexpr):
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(2) * UNITS + tl.arange(0, UNITS)
    return row, unit, (row < p)[:, None] & (unit < d)[None, :]


@triton.jit
def _centre(centre, kept, graph, owner, row, p, BESIDE: tl.constexpr):
    """What nodes count for themselves; to the first layer those without edges are zero."""
    own = tl.load(centre + owner)
    if BESIDE:
        own = own * tl.load(kept + graph * p + row, mask=row < p, other=0.0)[:, None]
    return own


@triton.jit
def _hear(
    hidden, centre, bias, graphs, kept, out, batch, experts, p: tl.constexpr, d: tl.constexpr,
    BESIDE: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    graph, owner, start, stride = _whose(batch, experts, p, d, BESIDE)
    row, unit, inside = _part(p, d, ROWS, UNITS)
    links = graphs + (graph * p + row)[:, None] * WIDTH
    total = tl.zeros((ROWS, UNITS), tl.float32)
    for first in range(0, p, STEP):
        other = first + tl.arange(0, STEP)
        link = tl.load(links + other[None, :], mask=(row < p)[:, None], other=0)
        value = tl.load(
            hidden + start + other[:, None] * stride + unit[None, :],
            mask=(other < p)[:, None] & (unit < d)[None, :], other=0.0,
        )  # fmt: skip
        total += tl.dot(link.to(tl.float32), value, input_precision=PRECISION)
    place = start + row[:, None] * stride + unit[None, :]
    own = tl.load(hidden + place, mask=inside, other=0.0)
    total += own * _centre(centre, kept, graph, owner, row, p, BESIDE)
    total += tl.load(bias + owner * d + unit, mask=unit < d, other=0.0)[None, :]
    target = out + (graph * p + row)[:, None] * d + unit[None, :]
    tl.store(target, tl.maximum(total, 0.0, propagate_nan=tl.PropagateNan.ALL), mask=inside)


@triton.jit
def _open(grad, out, graph, row, unit, p, d: tl.constexpr):
    """Gradients of some nodes before the ReLU."""
    place = (graph * p + row)[:, None] * d + unit[None, :]
    inside = (row < p)[:, None] & (unit < d)[None, :]
    above = tl.load(grad + place, mask=inside, other=0.0)
    return tl.where(tl.load(out + place, mask=inside, other=0.0) > 0, above, 0.0)


@triton.jit
def _hear_back(
    grad, hidden, centre, out, graphs, kept, to_hidden, sums, products, batch, experts,
    p: tl.constexpr, d: tl.constexpr,
    BESIDE: tl.constexpr, WIDTH: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Gradients of nodes, and what some nodes add to those of bias and centre."""
    graph, owner, start, stride = _whose(batch, experts, p, d, BESIDE)
    row, unit, inside = _part(p, d, ROWS, UNITS)
    links = graphs + (graph * p + row)[:, None] * WIDTH
    total = tl.zeros((ROWS, UNITS), tl.float32)
    for first in range(0, p, STEP):
        other = first + tl.arange(0, STEP)
        # Graphs are symmetric.
        link = tl.load(links + other[None, :], mask=(row < p)[:, None], other=0)
        above = _open(grad, out, graph, other, unit, p, d)
        total += tl.dot(link.to(tl.float32), above, input_precision=PRECISION)
    above = _open(grad, out, graph, row, unit, p, d)
    target = (graph * tl.num_programs(1) + tl.program_id(1)) * d + unit
    tl.store(sums + target, tl.sum(above, 0), mask=unit < d)
    place = start + row[:, None] * stride + unit[None, :]
    total += above * _centre(centre, kept, graph, owner, row, p, BESIDE)
    tl.store(to_hidden + place, total, mask=inside)
    above *= tl.load(hidden + place, mask=inside, other=0.0)
    if BESIDE:
        above *= tl.load(kept + graph * p + row, mask=row < p, other=0.0)[:, None]
    tl.store(products + target, tl.sum(above, 0), mask=unit < d)


@triton.jit
def _some(hidden, row, stride, unit, p, d: tl.constexpr):
    """Some units of some nodes."""
    inside = (row < p)[:, None] & (unit < d)[None, :]
    return tl.load(hidden + row[:, None] * stride + unit[None, :], mask=inside, other=0.0)


@triton.jit
def _to_edges(
    grad, hidden, out, slots, starts, to_masks, batch, experts, places,
    p: tl.constexpr, d: tl.constexpr, BESIDE: tl.constexpr, PRECISION: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr, UNITS: tl.constexpr,
):  # fmt: skip
    """Gradients ``g_i . x_j + g_j . x_i`` of all edges i -> j, i < j, whose i is in a group."""
    graph, owner, start, stride = _whose(batch, experts, p, d, BESIDE)
    lists = owner // experts * batch + graph % batch
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    to_masks += graph * places
    tiles: tl.constexpr = (d + UNITS - 1) // UNITS
    unit = tl.arange(0, UNITS)
    if tiles == 1:
        left = _some(hidden + start, row, stride, unit, p, d)
        above = _open(grad, out, graph, row, unit, p, d)
    # Only later nodes are the second ends of such edges.
    for first in range(tl.program_id(1) * ROWS, p, STEP):
        other = first + tl.arange(0, STEP)
        total = tl.zeros((ROWS, STEP), tl.float32)
        for tile in tl.static_range(tiles):
            unit = tile * UNITS + tl.arange(0, UNITS)
            if tiles > 1:
                left = _some(hidden + start, row, stride, unit, p, d)
                above = _open(grad, out, graph, row, unit, p, d)
            right = _some(hidden + start, other, stride, unit, p, d)
            below = _open(grad, out, graph, other, unit, p, d)
            total = tl.dot(above, tl.trans(right), total, input_precision=PRECISION)
            total = tl.dot(left, tl.trans(below), total, input_precision=PRECISION)
        pair = (row[:, None] < other[None, :]) & (other < p)[None, :]
        flat = (lists * p + row)[:, None] * p + other[None, :]
        slot = tl.load(slots + flat, mask=pair, other=places)
        tl.store(to_masks + slot, total, mask=slot < places)
    if tl.program_id(1) == 0:
        # Places without an edge are the last.
        for place in range(tl.load(starts + lists * (p + 1) + p) // 2, places, FILL):
            empty = place + tl.arange(0, FILL)
            tl.store(to_masks + empty, 0.0, mask=empty < places)


def _options(chosen: dict[str, int], p: int, d: int) -> dict:
    """A tile no larger than the graphs, and how exact products are."""
    tile = chosen | (EXACT if exact() else {})
    tile["ROWS"] = max(16, min(tile["ROWS"], power_of_2(p)))
    tile["UNITS"] = max(16, min(tile["UNITS"], power_of_2(d)))
    return tile | {"PRECISION": "ieee" if exact() else "tf32"}


class Hear(Fused):
    """Nodes, centre (*F, K), bias (*F, K, d), masks, bytes and nodes as ``Graphs`` has them, lists.

    Nodes are (*F, K, B, P, d), or (*F, B, P, K, d) if ``beside``: this is the first layer, and
    nodes without edges count as zero. The result is (*F, K, B, P, d) in either case. Masks are
    there for their gradient, which they have if ``learnt``.
    """

    @staticmethod
    def run(hidden, centre, bias, masks, graphs, kept, slots, starts, places, beside, learnt):
        *lead, p, width = graphs.shape
        d = hidden.shape[-1]
        out = hidden.new_empty(*lead, p, d)
        tile = _options(TO_NODES, p, d)
        grid = (kept.numel() // p, triton.cdiv(p, tile["ROWS"]), triton.cdiv(d, tile["UNITS"]))
        _hear[grid](
            hidden, centre, bias, graphs, kept, out, lead[-1], lead[-2], p, d,
            BESIDE=beside, WIDTH=width, **tile,
        )  # fmt: skip
        return out

    @staticmethod
    def keep(inputs, output):
        hidden, centre, _, _, graphs, kept, slots, starts, *options = inputs
        return hidden, centre, output, graphs, kept, slots, starts, *options

    @staticmethod
    def slopes(grad, hidden, centre, out, graphs, kept, slots, starts, places, beside, learnt):
        *lead, p, width = graphs.shape
        d, count = hidden.shape[-1], kept.numel() // p
        sizes = (lead[-1], lead[-2])
        to_hidden = torch.empty_like(hidden)
        tile = _options(TO_NODES, p, d)
        grid = (count, triton.cdiv(p, tile["ROWS"]), triton.cdiv(d, tile["UNITS"]))
        sums, products = hidden.new_empty(2, *lead, grid[1], d).unbind(0)
        _hear_back[grid](
            grad, hidden, centre, out, graphs, kept, to_hidden, sums, products, *sizes, p, d,
            BESIDE=beside, WIDTH=width, **tile,
        )  # fmt: skip
        # Graphs are summed in a fixed order, so the result is the same in every run.
        found = (to_hidden, products.sum((-3, -2, -1)), sums.sum((-3, -2)))
        if not learnt:
            return found
        to_masks = hidden.new_empty(*lead, places)
        tile = _options(TO_EDGES, p, d)
        _to_edges[(count, triton.cdiv(p, tile["ROWS"]))](
            grad, hidden, out, slots, starts, to_masks, *sizes, places, p, d, BESIDE=beside, **tile,
        )  # fmt: skip
        return *found, to_masks
