"""What the benchmarks share: arguments, machine, timing, tables, and a cohort of ABIDE's size."""

import argparse
import os
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml

from brio_core.cohorts.arrays import connectivity, series_of
from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.splits import make_split
from brio_core.methods import registry
from brio_core.system.devices import make_deterministic
from brio_core.system.residence import stated
from brio_core.training.data import TrainingData, folds_of
from brio_core.training.problem import Problem, Trial

ROOT = Path(__file__).resolve().parents[1]
METHODS = ROOT / "config" / "methods"
# Products of matrices are deterministic on a GPU only with a workspace of this size.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def argument_parser(description: str) -> argparse.ArgumentParser:
    """The arguments of every benchmark: a device and the threads of a CPU."""
    layout = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=layout)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    return parser


def machine(device: str) -> str:
    """The hardware and versions that a number belongs to."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return (
        f"{name}, {platform.machine()}, {torch.get_num_threads()} thread(s), "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def begin(title: str, device: str, about: str = "") -> None:
    """Print the heading of a section of docs/benchmarks, and what its numbers belong to."""
    print(f"\n## {title}\n\n{machine(device)}{about}\n", flush=True)


def wait(device: str) -> None:
    """Wait until the device has done what it was asked for."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], device: str, repeats: int = 3) -> float:
    """Seconds of one call: the best of several timings, after one that is not counted.

    A timing holds as many calls as take a fifth of a second.
    """

    def timed(calls: int) -> float:
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        wait(device)
        return time.perf_counter() - begun

    timed(1)
    calls = max(1, int(0.2 / timed(1)))
    return min(timed(calls) for _ in range(repeats)) / calls


def peak_memory(process: int | str = "self") -> int:
    """Highest resident memory of a running process so far, in bytes; 0 where it has ended.

    From the kernel's own page: what ``resource`` tells begins with the memory of the parent.
    """
    return stated(f"/proc/{process}/status", "VmHWM")


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def common_settings(method: str, **overrides: object) -> dict[str, object]:
    """The shipped hyperparameters of a method, with changes."""
    presets = yaml.safe_load((METHODS / f"{method}.yaml").read_text())["presets"]
    return {**presets["common"], **overrides}


@dataclass(frozen=True)
class Size:
    """The size of a made-up cohort; the defaults are those of ABIDE."""

    subjects: int = 1035
    sites: int = 20
    rois: int = 200
    frames: tuple[int, int] = (78, 316)
    # Further scans are copies: they cost the same, and making each one would take minutes.
    different: int = 2500


def smooth_noise(generator: np.random.Generator, frames: int, rois: int) -> np.ndarray:
    """A made-up scan (frames, ROIs) with some autocorrelation."""
    noise = generator.standard_normal((frames + 3, rois), np.float32)
    return noise[3:] + noise[2:-1] + noise[1:-2] + noise[:-3]


@cache
def make_cohort(size: Size) -> tuple[Cohort, dict]:
    """Unequal sites and scan lengths, balanced labels; with the LOSO split."""
    generator = np.random.default_rng(0)
    share = generator.dirichlet(np.full(size.sites, 3.0))
    count = np.maximum(12, (share * size.subjects).astype(int))
    count[np.argmax(count)] += size.subjects - count.sum()
    site = np.repeat([f"site{index:02d}" for index in range(size.sites)], count)
    label = np.concatenate([np.arange(number) % 2 for number in count])
    frames = generator.integers(*size.frames, size=len(site), endpoint=True)
    made = [smooth_noise(generator, number, size.rois) for number in frames[: size.different]]
    copied = np.arange(len(site)) % len(made)
    scans, fc = [made[index] for index in copied], connectivity(made)[copied]
    subjects = tuple(f"s{index:05d}" for index in range(len(site)))
    covariates = np.zeros((len(site), 3), np.float32)
    people = pd.DataFrame({"subject": subjects, "site": site, "label": label, "group": "n/a"})
    split = make_split(people, "made-up", "loso", 0)
    series = series_of(scans, subjects)
    cohort = Cohort("made-up", subjects, site, fc, series, covariates)
    return cohort, split


def make_problem(
    name: str, size: Size, hyperparameters: dict, device: str, budget: int | None = None
) -> Problem:
    """A method on all folds of a made-up cohort, computed as exactly as a run would be.

    ``budget`` limits the bytes of tables that the device keeps; the rest is streamed.
    """
    cohort, split = make_cohort(size)
    method = registry.find(name)
    known = method.Hyperparameters.of(hyperparameters, name)
    folds = folds_of(split, lambda fold: 7.0)
    data = TrainingData(cohort, split, folds, torch.device(device), budget)
    make_deterministic(data.device, hyperparameters["precision"])
    return Problem(data, Trial(method, known, name, 0))
