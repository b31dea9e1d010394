"""Epochs of growing cohorts on a GPU: time of their parts, and memory.

python benchmarks/epochs.py --subjects 5000 10000 20000 --device cuda

All folds train together. Scans and connectivity stay in pinned memory of the host, which a GPU
reads by itself. Steps are timed, a refresh of BRIO's qualifications, and a validation; an epoch is
made of them. The last row of a method is calculated: every part grows with subjects as between the
last two sizes, and with ROIs as the row above it says.
"""

import gc
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from common import Size, argument_parser, begin, common_settings, make_problem, table, wait

from brio_core.training.gradient import GradientFit
from brio_core.training.trainer import groups

PARSER = argument_parser(__doc__)
PARSER.add_argument("--subjects", type=int, nargs="+", default=(5000, 10000, 20000))
PARSER.add_argument("--methods", nargs="+", default=("brio", "brainnettf"))
PARSER.add_argument("--rois", type=int, default=200)
PARSER.add_argument("--frames", type=int, default=300)
PARSER.add_argument("--sites", type=int, default=20)
ARGUMENTS = PARSER.parse_args()
if not ARGUMENTS.device.startswith("cuda"):
    PARSER.error("it measures memory of a GPU: add --device cuda")
if len(ARGUMENTS.subjects) < 2:
    PARSER.error("--subjects needs at least two sizes, to calculate a larger one")
# Steps whose time is measured, and the size that is calculated: subjects, ROIs.
STEPS, LARGEST = 50, (100_000, 400)


class Epoch(NamedTuple):
    """Seconds of a step, a refresh and a validation; gigabytes of the GPU and of pinned memory.

    ``steps`` is how many an epoch has, ``refreshes`` how often a refresh comes in a step.
    """

    step: float
    refresh: float
    validation: float
    gpu: float
    pinned: float
    steps: float
    refreshes: float

    def cells(self) -> tuple[str, ...]:
        """Cells of the table, the epoch's seconds before gigabytes."""
        epoch = self.steps * (self.step + self.refresh * self.refreshes) + self.validation
        times = (1e3 * self.step, self.refresh, self.validation, epoch)
        return *(f"{time:.3g}" for time in times), f"{self.gpu:.1f}", f"{self.pinned:.1f}"


def timed(call: Callable[[], object]) -> float:
    """Seconds of the third call: the first compiles, the second captures."""
    call()
    call()
    wait(ARGUMENTS.device)
    begun = time.perf_counter()
    call()
    wait(ARGUMENTS.device)
    return time.perf_counter() - begun


def measure(name: str, subjects: int, rois: int) -> Epoch:
    """An epoch of all folds."""
    # Folds and their captured graphs name each other.
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    frames = (ARGUMENTS.frames, ARGUMENTS.frames)
    size = Size(subjects, ARGUMENTS.sites, rois, frames, different=100)
    problem = make_problem(name, size, common_settings(name), ARGUMENTS.device, budget=0)
    fit = GradientFit(problem, max(groups(problem, None), key=len), 0)
    settings, per_epoch = fit.hyperparameters, fit.batches.per_epoch
    phase = fit.method.phase(settings, settings.epochs)
    first = getattr(settings, "warmup_epochs", 0) * per_epoch

    def refresh() -> None:
        fit.method.before_step(fit.stack, fit.scans, settings, first, per_epoch)

    def steps() -> None:
        for _ in range(STEPS):
            fit._replay(phase, partial(fit._step, phase))

    refreshing = timed(refresh)
    step = timed(steps) / STEPS
    validation = timed(partial(fit._replay, "select", fit._select))
    tables = [one for one in problem.data._tables.values() if isinstance(one, torch.Tensor)]
    pinned = sum(one.nbytes for one in tables if one.is_pinned())
    memory = (torch.cuda.max_memory_allocated() / 1e9, pinned / 1e9)
    refreshes = 1 / getattr(settings, "refresh_interval", np.inf)
    found = Epoch(step, refreshing * (refreshes > 0), validation, *memory, per_epoch, refreshes)
    print(name, subjects, rois, *found.cells(), file=sys.stderr, flush=True)
    return found


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    about = f"; {ARGUMENTS.frames} frames, {ARGUMENTS.sites} sites"
    begin("Epochs of large cohorts", ARGUMENTS.device, about)
    rows = []
    for name in ARGUMENTS.methods:
        sizes = [(subjects, ARGUMENTS.rois) for subjects in ARGUMENTS.subjects]
        sizes += [(ARGUMENTS.subjects[-1], LARGEST[1])]
        found = {size: measure(name, *size) for size in sizes}
        few, most, wide = (np.array(found[size]) for size in sizes[-3:])
        wider = np.divide(wide, most, out=np.ones(len(most)), where=most > 0)
        times = (LARGEST[0] - sizes[-2][0]) / (sizes[-2][0] - sizes[-3][0])
        found[LARGEST] = Epoch(*(most + (most - few) * times) * wider)
        for (subjects, rois), one in found.items():
            note = ", calculated" if (subjects, rois) == LARGEST else ""
            rows.append((f"{name}{note}", f"{subjects:,}", rois, *one.cells()))
    costs = ("ms per step", "s per refresh", "s to validate", "s per epoch", "GPU, GB", "host, GB")
    print(table(("method", "subjects", "ROIs", *costs), rows))


if __name__ == "__main__":
    main()
