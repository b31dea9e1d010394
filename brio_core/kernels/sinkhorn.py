"""All Sinkhorn iterations of many small problems in registers: one load, one store."""

import math

import torch
import triton
import triton.language as tl

from brio_core.kernels.functions import Constant, power_of_2

# Elements that one warp holds: small problems are packed, large ones spread over warps.
ELEMENTS_PER_PROGRAM = 128
ELEMENTS_PER_WARP = 512


@triton.jit
def _logsumexp2(values, axis: tl.constexpr):
    """log2 of the sum of powers of 2 along an axis."""
    largest = tl.max(values, axis)
    return largest + tl.log2(tl.sum(tl.exp2(values - tl.expand_dims(largest, axis)), axis))


@triton.jit
def _update(scaled, phi, psi, is_row, is_column, log2_n, log2_m, SYMMETRIC: tl.constexpr):
    """One iteration on potentials in base 2 over -(epsilon ln 2)."""
    update = _logsumexp2(scaled - psi[:, None, :], 2) - log2_m
    if SYMMETRIC:
        # Both copies of the one potential take the averaged step from the old one: the
        # transposed reduction is cheaper than moving a row potential to the columns.
        transposed = _logsumexp2(scaled - phi[:, :, None], 1) - log2_n
        phi = tl.where(is_row, (phi + update) * 0.5, 0.0)
        psi = tl.where(is_column, (psi + transposed) * 0.5, 0.0)
    else:
        phi = tl.where(is_row, update, 0.0)
        update = _logsumexp2(scaled - phi[:, :, None], 1) - log2_n
        psi = tl.where(is_column, update, 0.0)
    return phi, psi


@triton.jit
def _sinkhorn(
    cost_pointer, plan_pointer, entropy_pointer,
    problems, n, m, epsilon, log2_n, log2_m, iterations,
    SYMMETRIC: tl.constexpr, PACK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    problem = tl.program_id(0).to(tl.int64) * PACK + tl.arange(0, PACK)
    row = tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    is_problem = problem < problems
    is_row = (row < n)[None, :]
    is_column = (column < m)[None, :]
    inside = is_row[:, :, None] & is_column[:, None, :]
    place = (problem * n * m)[:, None, None] + (row * m)[None, :, None] + column[None, None, :]
    known = inside & is_problem[:, None, None]
    cost = tl.load(cost_pointer + place, mask=known, other=0.0)

    # Base 2 throughout: scaled = -cost / (epsilon ln 2), and potentials over -(epsilon ln 2).
    unit = epsilon * 0.6931471805599453
    # Finite in the padding, whose potentials stay zero, so that no infinities meet.
    scaled = tl.where(inside, -cost / unit, -1.0e30)
    phi = tl.zeros((PACK, ROWS), tl.float32)
    psi = tl.zeros((PACK, COLUMNS), tl.float32)
    for _ in range(iterations):
        phi, psi = _update(scaled, phi, psi, is_row, is_column, log2_n, log2_m, SYMMETRIC)

    plan = tl.exp2(scaled - phi[:, :, None] - psi[:, None, :] - log2_n - log2_m)
    plan = tl.where(inside, plan, 0.0)
    mass = tl.sum(tl.sum(plan, 2), 1)
    transported = tl.sum(tl.sum(plan * cost, 2), 1)
    dual = -unit * (tl.sum(phi, 1) / n + tl.sum(psi, 1) / m) + epsilon * (1.0 - mass)

    tl.store(plan_pointer + place, plan, mask=known)
    tl.store(entropy_pointer + problem, dual - transported, mask=is_problem)


def _shape(elements: int) -> tuple[int, int]:
    """Problems per program and warps, for problems of so many elements."""
    pack = max(1, ELEMENTS_PER_PROGRAM // elements)
    return pack, min(8, max(1, elements // ELEMENTS_PER_WARP))


class Sinkhorn(Constant):
    """Plans (..., n, m) and entropies (...) of costs (..., n, m); n and m are at most 64."""

    @staticmethod
    def run(cost, epsilon, iterations, symmetric):
        *batch, n, m = cost.shape
        problems = math.prod(batch)
        plan, entropy = torch.empty_like(cost), cost.new_empty(batch)
        rows, columns = (max(4, power_of_2(side)) for side in (n, m))
        pack, warps = _shape(rows * columns)
        _sinkhorn[(triton.cdiv(problems, pack),)](
            cost, plan, entropy, problems, n, m, epsilon, math.log2(n), math.log2(m), iterations,
            SYMMETRIC=symmetric, PACK=pack, ROWS=rows, COLUMNS=columns, num_warps=warps,
        )  # fmt: skip
        return plan, entropy
