"""Small cohorts in memory, for tests that need no files."""

from pathlib import Path

import numpy as np
import pandas as pd
import torch
import yaml

from brio_core.cohorts.cohort import Cohort
from brio_core.cohorts.splits import make_split
from brio_core.cohorts.stores import Rois, Series
from brio_core.connectivity.fisher_z import fisher_z_connectivity
from brio_core.methods import registry
from brio_core.methods.interface import Batch
from brio_core.system.residence import rows_of
from brio_core.training.checkpoints import Checkpoints
from brio_core.training.data import TrainingData, folds_of
from brio_core.training.problem import Problem, Trial
from brio_core.training.trainer import train

METHODS = Path(__file__).parents[1] / "config" / "methods"
# Applied to the common preset of any method that has the setting: enough to go through every
# phase of training within a second.
SMALL = {
    "epochs": 6,
    "patience": 0,
    "first_epoch": 3,
    "batch_size": 16,
    "subjects_per_site_class": 2,
    "subjects_per_site": 4,
    "learning_rate": 3e-3,
    "precision": "float32",
    "hidden": 8,
    "feedforward": 16,
    "extractor_hidden": [16, 8],
    "experts": 3,
    "roi_dim": 4,
    "factors": 2,
    "total_factor_dim": 8,
    "assignment_dim": 4,
    "reestimates": 3,
    "bootstraps": 4,
    "refresh_interval": 4,
    "warmup_epochs": 2,
    "sinkhorn_iterations": 20,
}


def settings_of(name: str, **overrides: object):
    """The common preset of a method, shrunk where tests would be slow."""
    values = yaml.safe_load((METHODS / f"{name}.yaml").read_text())["presets"]["common"]
    values |= {key: value for key, value in SMALL.items() if key in values}
    return registry.find(name).Hyperparameters.of({**values, **overrides}, name)


def make_cohort(
    n_sites: int = 6, per_class: int = 4, n_rois: int = 10, effect: float = 0.5, seed: int = 0
) -> tuple[Cohort, pd.DataFrame]:
    """Autocorrelated scans of unequal length; the classes differ in one edge at every site."""
    generator = np.random.default_rng(seed)
    rows, scans = [], []
    for site in range(n_sites):
        for label in (0, 1):
            for number in range(per_class):
                frames = int(generator.integers(50, 80))
                noise = generator.standard_normal((frames, n_rois))
                for frame in range(1, frames):
                    noise[frame] += 0.5 * noise[frame - 1]
                noise[:, 1] += (effect if label else -effect) * noise[:, 0]
                noise[:, 3] += (0.2 * site) * noise[:, 2]
                scans.append(noise.astype(np.float32))
                rows.append((f"s{site}c{label}n{number}", f"site{site}", label))
    table = pd.DataFrame(rows, columns=["subject", "site", "label"]).assign(group="n/a")
    series = Series(
        tuple(table["subject"]),
        np.concatenate(scans),
        np.cumsum([0] + [len(scan) for scan in scans]),
        Rois.named(f"roi{index}" for index in range(n_rois)),
        {},
    )
    fc = np.stack([fisher_z_connectivity(scan) for scan in scans]).astype(np.float32)
    covariates = generator.standard_normal((len(table), 3)).astype(np.float32)
    return Cohort("toy", series.subjects, table["site"].to_numpy(), fc, series, covariates), table


def inputs_of(problem: Problem, rows=None) -> dict[str, torch.Tensor]:
    """What the method needs of some subjects, or of all."""
    rows = torch.as_tensor(range(len(problem.data.cohort.subjects)) if rows is None else rows)
    return {name: rows_of(table, rows) for name, table in problem.inputs.items()}


def make_problem(
    name: str,
    cohort: Cohort | None = None,
    table: pd.DataFrame | None = None,
    protocol: str = "loso",
    folds: slice = slice(None),
    variant: str | None = None,
    seed: int = 0,
    **overrides: object,
) -> tuple[Problem, dict]:
    """A run of a method on a toy cohort, with small hyperparameters."""
    if cohort is None:
        cohort, table = make_cohort()
    split = make_split(table, cohort.name, protocol, 0)
    chosen = folds_of(split, lambda fold: 4.0)[folds]
    data = TrainingData(cohort, split, chosen, torch.device("cpu"))
    trial = Trial(registry.find(name), settings_of(name, **overrides), variant or name, seed)
    return Problem(data, trial), split


def untrained(name: str, n_subjects: int, n_rois: int, **overrides: object) -> tuple:
    """A method for three sites, and its features of random FC."""
    torch.manual_seed(0)
    module = registry.find(name)(settings_of(name, **overrides), n_rois, 3)
    fc = torch.randn(n_subjects, n_rois, n_rois, generator=torch.Generator().manual_seed(1))
    return module, module.features({"fc": (fc + fc.mT) * ~torch.eye(n_rois, dtype=torch.bool)})


def few_steps(name: str, n_subjects: int, n_rois: int, **overrides: object) -> tuple:
    """The same after a few steps, so that it is not trivial to evaluate."""
    module, features = untrained(name, n_subjects, n_rois, **overrides)
    for key in range(3):
        module.loss(batch_of(features, key), "0.7")
    return module.eval(), features


def batch_of(features: dict, key: int) -> Batch:
    """All subjects of features, of two classes and one site."""
    label = torch.arange(len(next(iter(features.values())))) % 2
    return Batch(features, label, torch.zeros_like(label), torch.tensor(key))


def trained_by(module: torch.nn.Module, loss: torch.Tensor) -> set[str]:
    """Parts of the module that a loss gives a gradient to."""
    names = [name for name, _ in module.named_parameters()]
    grads = torch.autograd.grad(
        loss, list(module.parameters()), allow_unused=True, retain_graph=True
    )
    return {
        name.split(".")[0]
        for name, value in zip(names, grads)
        if value is not None and bool((value != 0).any())
    }


def train_all(problem: Problem, folder: Path, group_size: int | None = None) -> list:
    """Train all folds of a problem, with checkpoints that are never due."""
    return train(problem, Checkpoints(folder, "test", 1e9), group_size)


def autoregressive(n_frames: int, n_series: int, memory: float, seed: int = 0) -> np.ndarray:
    """Series with a known memory."""
    series = np.random.default_rng(seed).standard_normal((n_frames, n_series))
    for frame in range(1, n_frames):
        series[frame] += memory * series[frame - 1]
    return series
