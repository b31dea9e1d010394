"""A model for scans of a new site, in one sealed file of tensors and JSON.

It holds weights, what was trained on in numbers of whole sites, and what to expect at a new site;
nothing of a single subject.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.stores import Series
from brio_core.connectivity.block_length import round_half_up
from brio_core.connectivity.fisher_z import fisher_z_connectivity, standardise
from brio_core.connectivity.reestimation import subject_keys
from brio_core.methods import registry
from brio_core.methods.interface import Features, Method
from brio_core.methods.linear.sites import ELSEWHERE
from brio_core.methods.training_scans import Scans
from brio_core.system import sealed
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic
from brio_core.system.threads import spread

# Scans that are worked on together, by one thread or by a GPU.
ON_CPU, ON_GPU = 4, 64
# Re-estimates that neither training nor diagnostics have drawn.
REFRESH = 2_000_000


class Answers(NamedTuple):
    """What a model says of some scans: Fisher-z connectivity (n, P, P), logits (n,), and again.

    ``again`` (n, K) are the logits of re-estimates.
    """

    fisher_z: np.ndarray
    logits: np.ndarray
    again: np.ndarray


def answers(
    module: Method,
    series: Series,
    reestimates: int = 0,
    block_length: float = 1.0,
    covariates: np.ndarray | None = None,
    device: torch.device | None = None,
) -> Iterator[Answers]:
    """Answers to all scans in their order, a bounded number at a time.

    A scan's numbers do not depend on the others. ``covariates`` are age, sex and mean framewise
    displacement (N, 3), unless given unknown.
    """
    device = device or torch.device("cpu")
    series.require_frames(module.min_frames, module.name)
    module = module.to(device)
    if covariates is None:
        covariates = np.full((len(series), 3), np.nan, np.float32)

    def answer(rows: np.ndarray) -> Answers:
        with torch.no_grad():  # which every thread has to be told
            return _answer(module, series, rows, covariates, reestimates, block_length, device)

    step = ON_CPU if device.type == "cpu" else ON_GPU
    parts = [np.arange(at, min(at + step, len(series))) for at in range(0, len(series), step)]
    # Files are read by the threads too, so few parts are on their way at a time.
    for at in range(0, len(parts), 16):
        yield from spread(answer, parts[at : at + 16], device)


def _answer(
    module: Method,
    series: Series,
    rows: np.ndarray,
    covariates: np.ndarray,
    count: int,
    block_length: float,
    device: torch.device,
) -> Answers:
    read = [torch.as_tensor(series.scan(row), device=device).double() for row in rows]
    # As rule connect does it: in double precision, then stored in single.
    fisher_z = torch.stack([fisher_z_connectivity(scan) for scan in read]).float()
    frames = torch.as_tensor(series.frames[rows], device=device)
    needs = module.needed(module.hyperparameters)
    bold = torch.zeros(len(rows), int(frames.max()), len(series.rois), device=device)
    if count or "bold" in needs:
        for place, scan in enumerate(read):
            bold[place, : len(scan)] = standardise(scan)
    about = {
        "frames": frames,
        "covariates": torch.as_tensor(covariates[rows], device=device),
        "row": torch.full_like(frames, -1),
        "site_number": torch.full_like(frames, ELSEWHERE),
    }

    def logits(scans: Features, times: int, precision: torch.dtype) -> Tensor:
        known = {name: value.repeat_interleave(times, 0) for name, value in about.items()} | scans
        made = module.features({name: known[name] for name in needs}, precision)
        return module.logits(made).double().cpu()

    full = logits({"fc": fisher_z, "bold": bold}, 1, torch.float64)
    again = torch.zeros(len(rows), 0)
    if count:
        keys = subject_keys("new scans", [series.subjects[row] for row in rows], 0).to(device)
        scans = Scans(lambda: bold, frames, keys)
        draw = torch.arange(len(rows), device=device), torch.tensor(round_half_up(block_length))
        draw = (draw[0], draw[1].to(device), REFRESH, count)
        made = {}
        if "fc" in needs:
            made["fc"] = scans.reestimate(*draw).flatten(0, 1)
        if "bold" in needs:
            made["bold"] = scans.resample(*draw).flatten(0, 1)
        # They are a sample of what the scan could have been, so single precision will do.
        again = logits(made, count, torch.float32).unflatten(0, (-1, count))
    return Answers(fisher_z.cpu().numpy(), full.numpy(), again.numpy())


FORMAT, VERSION = "brio-bundle", 1
ENDING = ".brio"


@dataclass(frozen=True)
class Bundle:
    """``about`` is plain JSON; ``arrays`` describe the training sites (evaluation.site_distance).

    Keys of ``about`` that predictions need: ``method``, ``hyperparameters``, ``n_sites``, ``rois``
    (``names``), ``decision`` (``threshold``, ``slope``, ``intercept``) and ``block_length``.
    """

    about: dict[str, Any]
    state: dict[str, Tensor]
    arrays: dict[str, np.ndarray]

    @cached_property
    def module(self) -> Method:
        """The trained module, in evaluation mode."""
        method = registry.find(self.about["method"])
        hyperparameters = method.Hyperparameters.of(self.about["hyperparameters"], "the bundle")
        module = method(hyperparameters, len(self.about["rois"]["names"]), self.about["n_sites"])
        module.load_state_dict(self.state)
        return module.eval()

    def calibrated(self, logits: np.ndarray) -> np.ndarray:
        """Probabilities of class 1 from logits."""
        decision = self.about["decision"]
        scaled = decision["slope"] * np.asarray(logits, float) + decision["intercept"]
        return 0.5 * (1 + np.tanh(scaled / 2))

    def decides(self, logits: np.ndarray) -> np.ndarray:
        """Whether class 1 is said."""
        return np.asarray(logits) > self.about["decision"]["threshold"]

    def probabilities(self, series: Series, covariates: np.ndarray | None = None) -> np.ndarray:
        """Probabilities of class 1 of scans that were read already."""
        parts = answers(self.module, series, covariates=covariates)
        return self.calibrated(np.concatenate([part.logits for part in parts]))


def refuse_bundle(module: Method) -> None:
    """Raise if predictions of a method need more than the scan itself and fitted numbers."""
    if module.needs_population:
        asked = "the scans of its training subjects, which a bundle must not hold"
    elif getattr(module, "meets_sites", False):
        asked = "the other scans of a new site, which a single scan does not bring along"
    else:
        return
    raise BrioError(
        f"{module.name} cannot predict without {asked}; choose another method, or put the new "
        "scans into the cohort"
    )


def write_bundle(path: Path, bundle: Bundle) -> None:
    """Write a bundle in one step; equal bundles are equal files."""
    with atomic(path) as temporary, sealed.create(temporary) as store:
        store.attrs.update(format=FORMAT, version=VERSION)
        store["about"] = json.dumps(bundle.about, sort_keys=True)
        for name, value in sorted(bundle.state.items()):
            store[f"state/{name}"] = value.cpu().numpy()
        for name, value in sorted(bundle.arrays.items()):
            store[f"arrays/{name}"] = value


def read_bundle(path: Path) -> Bundle:
    """Read a bundle that is still what was written; nothing in it can run code."""
    if not Path(path).is_file():
        raise BrioError(f"{path} is no file; name a bundle, which 'snakemake model' makes")
    if not sealed.is_sealed(path):
        raise BrioError(f"{path} is no bundle; name the {ENDING} file that 'snakemake model' made")
    try:
        sealed.check(path)
    except BrioError:
        raise BrioError(
            f"{path} was cut off or edited, for its checksum does not fit; copy it again from "
            "where it was made"
        ) from None
    with h5py.File(path, "r", locking="best-effort") as store:
        kind, version = store.attrs.get("format"), int(store.attrs.get("version", 0))
        if kind != FORMAT:
            raise BrioError(f"{path} is a file of kind {kind!r} and no bundle; name a bundle")
        if version > VERSION:
            raise BrioError(
                f"{path} is a bundle of format {version} by a newer version of BRIO, and this one "
                f"reads up to {VERSION}; update BRIO"
            )
        about = json.loads(store["about"].asstr()[()])
        state = {name: torch.from_numpy(np.asarray(one[()])) for name, one in _in(store, "state")}
        return Bundle(about, state, {name: one[()] for name, one in _in(store, "arrays")})


def _in(store: h5py.File, group: str) -> Any:
    return store[group].items() if group in store else ()
