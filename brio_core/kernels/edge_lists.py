"""Values of listed edges as symmetric matrices, and the way back.

Lists are read once for all that share them. Several values of one edge, such as those of experts,
have axes between the folds and the graphs.
"""

import triton
import triton.language as tl

from brio_core.kernels.functions import Fused
from brio_core.kernels.uniform import hashed

# Pairs of nodes and places of edges that a program works on, and its warps.
TILE = {"BLOCK": 4096, "num_warps": 8}


@triton.jit
def number(place, key):
    """The uniform number at a place, as ``randomness.uniform`` draws it."""
    return (hashed(place, key.to(tl.uint32)) >> 8).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def own_graph(graph, part, parts, batch):
    """Where the values of a graph stand that one of several parts has beside each fold."""
    return (graph // batch * parts + part) * batch + graph % batch


# Else every drawing would be compiled for itself.
@triton.jit(do_not_specialize=["first"])
def _spread(
    values, keys, slots, out, batch, parts, places, p: tl.constexpr, first, diagonal,
    DRAW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    pair = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = pair < p * p
    slot = tl.load(slots + graph * p * p + pair, mask=inside, other=places)
    loop = pair // p == pair % p
    for part in range(parts):
        own = own_graph(graph, part, parts, batch)
        value = tl.load(values + own * places + slot, mask=slot < places, other=0.0)
        if DRAW:
            drawn = number(first + graph % batch * places + slot, tl.load(keys + graph // batch))
            kept = tl.where((drawn < value) & (slot < places), 1.0, 0.0)
            # What is no number stays none.
            value = tl.where(value == value, kept, value)
        value = tl.where(loop, diagonal, value)
        tl.store(out + own * p * p + pair, value, mask=inside)


@triton.jit
def _spread_back(
    grad, pairs, out, batch, parts, places, p: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    graph = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = place < places
    pair = tl.load(pairs + graph * 2 * places + place, mask=inside, other=0).to(tl.int32)
    listed, turned = pair > 0, pair % p * p + pair // p
    for part in range(parts):
        own = own_graph(graph, part, parts, batch)
        above = grad + own * p * p
        total = tl.load(above + pair, mask=listed, other=0.0)
        total += tl.load(above + turned, mask=listed, other=0.0)
        tl.store(out + own * places + place, total, mask=inside)


class Spread(Fused):
    """Values (*F, *K, B, E) and lists (*F, B, .) to symmetric matrices (*F, *K, B, P, P).

    With keys (*F) an edge is one with the chance that its value says, else zero; the gradient is
    that of the chance. Numbers are drawn from place ``first`` on. ``diagonal`` stands on the
    diagonal, and zero where no edge is.
    """

    @staticmethod
    def run(values, pairs, slots, keys, p, first, diagonal):
        lists, places = slots.numel() // (p * p), pairs.shape[-1] // 2
        out = values.new_empty(*values.shape[:-1], p, p)
        # What is not read may point anywhere.
        draw, keys = keys is not None, slots if keys is None else keys
        _spread[(lists, triton.cdiv(p * p, TILE["BLOCK"]))](
            values, keys, slots, out, slots.shape[-2], values.numel() // (lists * places), places,
            p, first, float(diagonal), DRAW=draw, **TILE,
        )  # fmt: skip
        return out

    @staticmethod
    def keep(inputs, output):
        return inputs[1], inputs[4]

    @staticmethod
    def slopes(grad, pairs, p):
        lists, places = pairs.numel() // pairs.shape[-1], pairs.shape[-1] // 2
        out = grad.new_empty(*grad.shape[:-2], places)
        _spread_back[(lists, triton.cdiv(places, TILE["BLOCK"]))](
            grad, pairs, out, pairs.shape[-2], grad.numel() // (lists * p * p), places, p,
            **TILE,
        )  # fmt: skip
        return out
