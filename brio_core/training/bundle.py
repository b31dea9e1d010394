"""A model for scans of a new site, in one sealed file of tensors and JSON.

It holds weights, what was trained on in numbers of whole sites, and what to expect at a new site;
nothing of a single subject.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.stores import Series
from brio_core.methods import registry
from brio_core.methods.interface import Method
from brio_core.system import sealed
from brio_core.system.errors import BrioError
from brio_core.system.files import atomic
from brio_core.training.prediction import answers

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
        f"{module.name} answers by asking {asked}; choose another method, or put the new scans "
        "into the cohort"
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
        raise BrioError(f"{path} does not exist; name a bundle, which 'snakemake model' makes")
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
