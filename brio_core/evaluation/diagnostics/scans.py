"""Scans as diagnostics ask about them: re-estimated, cut short, and kept for the next fold."""

from collections.abc import Callable

import torch
from torch import Tensor

from brio_core.connectivity.block_length import round_half_up
from brio_core.connectivity.fisher_z import standardise
from brio_core.connectivity.reestimation import reestimated_connectivity
from brio_core.methods.interface import Features
from brio_core.methods.training_scans import Scans
from brio_core.system.residence import tabulate

# Diagnostics draw re-estimates that no training refresh has drawn.
REFRESH = 1_000_000
GRAPHS_AT_ONCE = 512
# Where the window of a scan lies that is cut short.
POSITIONS = ("beginning", "middle", "end")


class SharedFeatures:
    """Features that no fold has fitted, made once for everybody while ``budget`` bytes allow it."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._tables: dict[object, Features | None] = {}

    def table(
        self,
        kind: object,
        make: Callable[[Tensor], Features],
        count: int,
        step: int,
        device: torch.device,
    ) -> Features | None:
        """As :func:`brio_core.system.residence.tabulate`, but every kind is made once."""
        if kind not in self._tables:
            table = tabulate(make, count, step, self.budget, device)
            self.budget -= sum(value.nbytes for value in (table or {}).values())
            self._tables[kind] = table
        return self._tables[kind]


class Reestimates:
    """``count`` re-estimates of every scan, the same for every method, fold and seed.

    Parameters
    ----------
    scans : Scans
    count : int
        K, re-estimates per scan.
    budget : int
        Bytes that may be kept; what exceeds them is re-estimated every time, with the same numbers.
    """

    def __init__(self, scans: Scans, count: int, budget: int = 2 * 2**30) -> None:
        self.scans = scans
        self.count = count
        self._kept = SharedFeatures(budget)

    def fc(self, rows: Tensor, block_length: int) -> Tensor:
        """Connectivity (n, K, P, P) of the subjects in ``rows``."""

        def make(part: Tensor) -> Features:
            return {"fc": self.scans.reestimate(*self._draw(part, block_length))}

        step = max(1, GRAPHS_AT_ONCE // self.count)
        table = self._kept.table(block_length, make, len(self.scans.frames), step, rows.device)
        return make(rows)["fc"] if table is None else table["fc"][rows]

    def bold(self, rows: Tensor, block_length: int) -> Tensor:
        """The resampled series (n, K, T_max, P) behind :meth:`fc`."""
        return self.scans.resample(*self._draw(rows, block_length))

    def _draw(self, rows: Tensor, block_length: int) -> tuple[Tensor, Tensor, int, int]:
        return rows, torch.tensor(block_length, device=rows.device), REFRESH, self.count


def window(frames: Tensor, fraction: float, position: str) -> tuple[Tensor, Tensor]:
    """First frame and number of frames of a window of every scan."""
    count = round_half_up(fraction * frames.double()).clamp_min(2)
    room = frames - count
    first = {"beginning": 0 * room, "middle": room // 2, "end": room}
    return first[position], count


def shortened(
    inputs: dict[str, Tensor], bold: Tensor, frames: Tensor, fraction: float, position: str
) -> dict[str, Tensor]:
    """The inputs of some subjects as if only a window of their scans had been acquired.

    Parameters
    ----------
    inputs : mapping
        What a method takes; ``fc``, ``bold`` and ``frames`` are replaced, the rest stays.
    bold : (N, T_max, P)
        Standardised within each scan, zero beyond its frames.
    frames : (N,)
    """
    first, count = window(frames, fraction, position)
    at = torch.arange(bold.shape[1], device=bold.device)
    made = dict(inputs)
    if "fc" in inputs:
        inside = (at >= first[:, None]) & (at < (first + count)[:, None])
        made["fc"] = reestimated_connectivity(bold, inside[:, None])[:, 0]
    if "bold" in inputs:
        # The window moves to the front; non-finite frames come back as zeros.
        index = (first[:, None] + at).clamp_max(bold.shape[1] - 1)
        moved = bold.gather(1, index[..., None].expand_as(bold))
        made["bold"] = standardise(moved.where((at < count[:, None])[..., None], torch.nan))
    if "frames" in inputs:
        made["frames"] = count
    return made
