"""Every method with and without the fused kernels, and without each kernel alone.

python benchmarks/kernels.py --device cuda
python benchmarks/kernels.py --device cuda --methods gat gsat --kernel attention

An epoch is its steps alone: no validation, no refreshes, no checkpoints. What comes before the
steps is timed beside it: making the folds' models and features, and one refresh. A kernel that only
works there is judged by that time. On a CPU no kernel runs, and both columns say the same.

Folds of equal shapes train together: of a method's groups of such folds the largest is timed.
"""

import gc
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

import torch
from common import (
    Size,
    argument_parser,
    common_settings,
    machine,
    make_problem,
    seconds,
    table,
    wait,
)

from brio_core import kernels
from brio_core.methods import registry
from brio_core.methods.interface import GradientMethod
from brio_core.training.gradient import GradientFit
from brio_core.training.trainer import groups

PARSER = argument_parser(__doc__)
PARSER.add_argument("--methods", nargs="*", help="default: all that are trained by gradients")
PARSER.add_argument("--kernel", nargs="*", help="turn off these alone (default: every one)")
PARSER.add_argument("--rois", type=int, default=200)
PARSER.add_argument("--subjects", type=int, default=1000)
PARSER.add_argument("--sites", type=int, default=20, help="there are as many folds")
ARGUMENTS = PARSER.parse_args()
# A kernel that gives less is not worth its lines.
LEAST_GAIN = 1.5


class Steps(GradientFit):
    """Folds that are trained without being validated."""

    def refresh(self) -> None:
        """What the method does before the first step after its warm-up."""
        first = getattr(self.hyperparameters, "warmup_epochs", 0) * self.batches.per_epoch
        given = (self.stack, self.scans, self.hyperparameters)
        self.method.before_step(*given, first, self.batches.per_epoch)

    def steps(self) -> None:
        """One epoch with the loss that training ends with."""
        phase = self.method.phase(self.hyperparameters, self.hyperparameters.epochs)
        for _ in range(self.batches.per_epoch):
            self._replay(phase, partial(self._step, phase))


class Measured(NamedTuple):
    """Folds, seconds before the steps and of an epoch of steps, and the kernels used in either."""

    folds: int
    before: float
    epoch: float
    kernels_before: set[str]
    kernels_in_steps: set[str]


def measure(name: str) -> Measured:
    """Time a method with the kernels that are turned on."""
    size = Size(ARGUMENTS.subjects, ARGUMENTS.sites, ARGUMENTS.rois)
    problem = make_problem(name, size, common_settings(name), ARGUMENTS.device)
    folds = max(groups(problem, None), key=len)

    def make() -> Steps:
        fit = Steps(problem, folds, problem.data.memory_budget)
        fit.refresh()
        wait(ARGUMENTS.device)
        return fit

    # The first time compiles, and is not counted.
    with kernels.recorded() as before:
        make()
    free_memory()
    begun = time.perf_counter()
    fit = make()
    elapsed = time.perf_counter() - begun
    with kernels.recorded() as in_steps:
        # A step is warmed up, captured and then replayed, however few of them an epoch has.
        for _ in range(3):
            fit.steps()
    epoch = seconds(fit.steps, ARGUMENTS.device)
    return Measured(len(folds), elapsed, epoch, before, in_steps)


def free_memory() -> None:
    """Give back what folds have held: they and their captured graphs name each other."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def tried(name: str, switches: AbstractContextManager) -> Measured | str:
    """What was measured, or one line on what went wrong."""
    try:
        with switches:
            return measure(name)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:120]
    finally:
        free_memory()


def compared(fast: float, slow: float, unit: float) -> tuple[str, str, str]:
    """Two times in parts of a second, and how often the shorter fits into the longer."""
    return f"{unit * fast:.2f}", f"{unit * slow:.2f}", f"{slow / fast:.2f}"


def compare(name: str, fused: Measured | str, plain: Measured | str) -> tuple[str, ...]:
    """A row of the first table; what failed says why."""
    for measured in (fused, plain):
        if isinstance(measured, str):
            return name, measured, *[""] * 6
    before, epoch = compared(fused.before, plain.before, 1), compared(fused.epoch, plain.epoch, 1e3)
    return name, str(fused.folds), *before, *epoch


def single_rows(name: str, fused: Measured) -> list[tuple]:
    """Rows of the second table: the method without each of its kernels alone."""
    rows = []
    for kernel in sorted(fused.kernels_before | fused.kernels_in_steps):
        if ARGUMENTS.kernel and kernel not in ARGUMENTS.kernel:
            continue
        plain = tried(name, kernels.without(kernel))
        if isinstance(plain, str):
            rows.append((name, kernel, plain, "", "", "", ""))
            continue
        in_steps = kernel in fused.kernels_in_steps
        fast, slow = (fused.epoch, plain.epoch) if in_steps else (fused.before, plain.before)
        verdict = "" if slow >= LEAST_GAIN * fast else f"below {LEAST_GAIN}"
        where = "steps" if in_steps else "before"
        rows.append((name, kernel, where, *compared(fast, slow, 1e3), verdict))
    return rows


def main() -> None:
    torch.set_num_threads(ARGUMENTS.threads)
    size = f"{ARGUMENTS.subjects} subjects, {ARGUMENTS.sites} sites, {ARGUMENTS.rois} ROIs"
    print(f"{machine(ARGUMENTS.device)}; {size}\n", flush=True)
    trained = [m for m in registry.names() if issubclass(registry.find(m), GradientMethod)]
    rows, singles = [], []
    for name in ARGUMENTS.methods or trained:
        fused, plain = tried(name, nullcontext()), tried(name, kernels.without())
        rows.append(compare(name, fused, plain))
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
        if isinstance(fused, Measured):
            singles += single_rows(name, fused)
    before = ("s before the steps", "without kernels", "times")
    epoch = ("ms per epoch", "without kernels", "times")
    print(table(("method", "folds", *before, *epoch), rows))
    print("\nEach kernel turned off alone:\n")
    print(table(("method", "kernel", "where", "ms", "ms without it", "times", ""), singles))


if __name__ == "__main__":
    main()
