"""``W drop(relu(s_i + r_j))`` of listed edges: the first layer lives in registers only.

A program makes some edges of one graph, and notes with one bit which units of the first layer are
heard. The way back (:mod:`brio_core.kernels.edge_back`) reads the bits instead of drawing again.

Where products may be less exact than float32, their factors and the sides are float16: it rounds
as TF32 does, and takes half the bytes. It ends at 65,504. Sums of sides are normalised and do not
reach that; a side would only where its sums cancel almost all of it. Gradients are small, so they
are divided by a bound.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from brio_core.kernels.edge_back import (
    LANES,
    launch,
    padded,
    part_of,
    place_of,
    tile_for,
    turns,
)
from brio_core.kernels.functions import factor
from brio_core.kernels.uniform import folded, keeps

# Edges of a tile, warps per program, and loads under way. What draws nothing waits for its loads,
# so it has more of them under way, unless it has few to do.
FORWARD = {"EDGES": 64, "num_warps": 4, "num_stages": 1}
UNDROPPED = {"EDGES": 64, "num_warps": 4, "num_stages": 3}
NARROW, FEW_UNITS = {"EDGES": 128, "num_warps": 4, "num_stages": 1}, 64


@triton.jit
def _forward(
    sender, receiver, weight, keys, pairs, starts, out, heard, moments, batch, p, places,
    D: tl.constexpr, d: tl.constexpr, rate: tl.constexpr, TURNS: tl.constexpr,
    KEEP: tl.constexpr, MOMENTS: tl.constexpr, PRECISION: tl.constexpr,
    EDGES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    part, graph = part_of(tl.cdiv(places, EDGES))
    fold = graph // batch
    step = part * EDGES + tl.arange(0, EDGES)
    column, lane = tl.arange(0, WIDTH), tl.arange(0, LANES)
    count = tl.load(starts + graph * (p + 1) + p)
    place = place_of(step, count, places)
    total = tl.zeros((EDGES, WIDTH), tl.float32)
    if part * EDGES < count:
        # Rows behind the last edge read what stands for none, a pair of node 0 with itself.
        flat = tl.load(pairs + graph * places + place, mask=step < count, other=0).to(tl.int32)
        left = sender + graph * p * D + (flat // p * D)[:, None]
        right = receiver + graph * p * D + (flat % p * D)[:, None]
        matrices = weight + fold * d * D + column[None, :] * D
        # An edge has a key of its own: then a unit costs half as many steps as with the fold's.
        key = folded(tl.load(keys + fold), graph % batch * places + place)[:, None]
        for group in tl.static_range((D + LANES * TURNS - 1) // (LANES * TURNS)):
            first = group * TURNS * LANES
            bits = tl.zeros((EDGES, LANES), tl.int32)
            turns = tl.minimum((D - first + LANES - 1) // LANES, TURNS)
            for turn in range(0, turns):
                start = first + turn * LANES
                unit = start + lane
                if D // LANES * LANES == D:
                    value = tl.load(left + unit[None, :]).to(tl.float32)
                    value += tl.load(right + unit[None, :]).to(tl.float32)
                    matrix = tl.load(
                        matrices + unit[:, None], mask=(column < d)[None, :], other=0.0
                    )
                else:
                    inside = (unit < D)[None, :]
                    value = tl.load(left + unit[None, :], mask=inside, other=0.0).to(tl.float32)
                    value += tl.load(right + unit[None, :], mask=inside, other=0.0).to(tl.float32)
                    matrix = tl.load(
                        matrices + unit[:, None],
                        mask=(column < d)[None, :] & (unit < D)[:, None], other=0.0,
                    )  # fmt: skip
                # What is no number must stay none, or training could diverge unseen.
                value = tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)
                if rate > 0:
                    value = tl.where(keeps(unit[None, :], key, rate), value, 0.0)
                if KEEP:
                    # The sign of -x tells whether x > 0; both shifts are one instruction.
                    sign = (0.0 - value).to(tl.uint32, bitcast=True) >> 31
                    bits = (bits << 1) | sign.to(tl.int32)
                total += tl.dot(value.to(matrix.dtype), matrix, input_precision=PRECISION)
            if KEEP:
                bits <<= TURNS - turns
                target = (
                    heard + (graph * places + place)[:, None] * tl.cdiv(D, LANES * TURNS) * LANES
                )
                target += group * LANES + lane[None, :]
                tl.store(target, bits.to(tl.uint8), mask=(step < count)[:, None])
        total /= 1.0 - rate
        if MOMENTS:
            # Of what is kept, about the tile's own mean: so nothing is lost where that is large.
            size, inside = tl.minimum(count - part * EDGES, EDGES), (step < count)[:, None]
            value = tl.where(inside, total.to(out.dtype.element_ty).to(tl.float32), 0.0)
            mean = tl.sum(value, 0) / size
            away = tl.where(inside, value - mean[None, :], 0.0)
            sums = moments + (graph * tl.cdiv(places, EDGES) + part) * 2 * d + column
            tl.store(sums, mean, mask=column < d)
            tl.store(sums + d, tl.sum(away * away, 0), mask=column < d)
    found = total.to(out.dtype.element_ty)
    stored = step < count if MOMENTS else step < places
    target = out + (graph * places + place)[:, None] * d + column[None, :]
    if not MOMENTS:
        found = tl.where((step < count)[:, None], found, 0.0)
    tl.store(target, found, mask=stored[:, None] & (column < d)[None, :])


def tile_of(rate: float, width: int) -> dict[str, int]:
    """The tile of the way forward."""
    undropped = UNDROPPED if width > FEW_UNITS else NARROW
    return tile_for(FORWARD if rate > 0 else undropped, width)


def forward(
    sender, receiver, weight, key, pairs, starts, rate, keep: bool, moments: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden as factors, bits if they are kept, and moments of tiles (graphs, tiles, 2, d).

    With moments, empty places stay undefined.
    """
    d, width = weight.shape[-2:]
    tile = tile_of(rate, width)
    parts = triton.cdiv(pairs.shape[-1], tile["EDGES"])
    out = sender.new_empty(*pairs.shape, d, dtype=factor())
    lanes = padded(width) // turns(width)
    heard = out.new_empty(*pairs.shape, lanes if keep else 0, dtype=torch.uint8)
    graphs = pairs.numel() // pairs.shape[-1]
    sums = sender.new_empty((graphs, parts, 2, d) if moments else 0)
    # Every edge reads two sides: as factors they have half of the bytes.
    factors = (part.to(factor()) for part in (sender, receiver, weight))
    inputs = (*factors, key, pairs, starts, out, heard, sums)
    options = {"KEEP": keep, "MOMENTS": moments}
    launch(_forward, parts, tile, inputs, pairs, starts, weight, rate, **options)
    return out, heard, sums
