"""FC re-estimates for diagnostics: the same for every method, fold and seed."""

import torch
from torch import Tensor

from brio_core.methods.training_scans import Scans

# Diagnostics draw re-estimates that no training refresh has drawn.
REFRESH = 1_000_000
GRAPHS_AT_ONCE = 512


class Reestimates:
    """``count`` re-estimates of every scan, kept for the next method where they fit.

    Parameters
    ----------
    scans : Scans
    count : int
        K, re-estimates per scan.
    budget : int
        Bytes that may be kept; a larger cohort is re-estimated every time, with the same numbers.
    """

    def __init__(self, scans: Scans, count: int, budget: int = 2 * 2**30) -> None:
        self.scans = scans
        self.count = count
        self.budget = budget
        self._kept: dict[int, Tensor] = {}

    def fc(self, rows: Tensor, block_length: int) -> Tensor:
        """Connectivity (n, K, P, P) of the subjects in ``rows``."""
        n_subjects, _, n_rois = self.scans.bold.shape
        size = n_subjects * self.count * n_rois**2 * self.scans.bold.element_size()
        if size > self.budget:
            return self.scans.reestimate(*self._draw(rows, block_length))
        if block_length not in self._kept:
            if (len(self._kept) + 1) * size > self.budget:
                self._kept.clear()
            chunks = torch.arange(n_subjects, device=rows.device).split(
                max(1, GRAPHS_AT_ONCE // self.count)
            )
            self._kept[block_length] = torch.cat(
                [self.scans.reestimate(*self._draw(chunk, block_length)) for chunk in chunks]
            )
        return self._kept[block_length][rows]

    def bold(self, rows: Tensor, block_length: int) -> Tensor:
        """The resampled series (n, K, T_max, P) behind :meth:`fc`."""
        return self.scans.resample(*self._draw(rows, block_length))

    def _draw(self, rows: Tensor, block_length: int) -> tuple[Tensor, Tensor, int, int]:
        return rows, torch.tensor(block_length, device=rows.device), REFRESH, self.count
