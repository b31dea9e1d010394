"""What the benchmarks share: machine, timing, tables, and a cohort of ABIDE's size."""

import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
import yaml

from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.stores import Rois, Series
from brio_core.connectivity.fisher_z import fisher_z_connectivity

METHODS = Path(__file__).resolve().parents[1] / "config" / "methods"


def machine(device: str) -> str:
    """The hardware and versions that a number belongs to."""
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return (
        f"{name}, {platform.machine()}, {torch.get_num_threads()} thread(s), "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def wait(device: str) -> None:
    """Wait until the device has done what it was asked for."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def seconds(call: Callable[[], object], device: str, repeats: int = 5) -> float:
    """The best of several timings of one call, after one that is not counted."""
    call()
    wait(device)
    times = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        wait(device)
        times.append(time.perf_counter() - begun)
    return min(times)


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def common_settings(method: str, **overrides: object) -> dict[str, object]:
    """The shipped defaults of a method, with changes."""
    presets = yaml.safe_load((METHODS / f"{method}.yaml").read_text())["presets"]
    return {**presets["common"], **overrides}


@dataclass(frozen=True)
class Size:
    """The size of a made-up cohort; the defaults are those of ABIDE."""

    subjects: int = 1035
    sites: int = 20
    rois: int = 200
    frames: tuple[int, int] = (78, 316)


@cache
def make_cohort(size: Size) -> tuple[Cohort, np.ndarray]:
    """Smoothed noise with unequal sites and scan lengths, and balanced labels."""
    generator = np.random.default_rng(0)
    share = generator.dirichlet(np.full(size.sites, 3.0))
    count = np.maximum(12, (share * size.subjects).astype(int))
    count[np.argmax(count)] += size.subjects - count.sum()
    site = np.repeat([f"site{index:02d}" for index in range(size.sites)], count)
    label = np.concatenate([np.arange(number) % 2 for number in count])
    frames = generator.integers(*size.frames, size=len(site), endpoint=True)
    scans = []
    for number in frames:
        noise = generator.standard_normal((number + 3, size.rois), np.float32)
        scans.append(noise[3:] + noise[2:-1] + noise[1:-2] + noise[:-3])
    subjects = tuple(f"s{index:05d}" for index in range(len(site)))
    series = Series(
        subjects,
        np.concatenate(scans),
        np.concatenate([[0], np.cumsum(frames)]),
        Rois.named(f"roi{index}" for index in range(size.rois)),
        {},
    )
    fc = np.stack([fisher_z_connectivity(scan) for scan in scans]).astype(np.float32)
    covariates = np.zeros((len(site), 3), np.float32)
    return Cohort("made-up", subjects, site, fc, series, covariates), label
