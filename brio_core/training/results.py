"""What a finished run leaves behind: predictions, history, models, meta."""

import csv
import gzip
import io
import itertools
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from brio_core import __version__
from brio_core.methods import registry
from brio_core.methods.hyperparameters import Hyperparameters
from brio_core.methods.interface import Features, Method
from brio_core.system.errors import MAYBE_OURS, BrioError
from brio_core.system.files import atomic, write_text
from brio_core.system.residence import gather
from brio_core.training.data import Fold, TrainingData
from brio_core.training.problem import Problem
from brio_core.training.selection import calibration, decision_threshold

MODEL_FORMAT = "brio-models"
MODEL_VERSION = 2
_GZIP = b"\x1f\x8b"


def software() -> dict[str, str]:
    """The versions that results keep."""
    return {
        "brio": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
    }


@dataclass(frozen=True)
class FoldResult:
    """The selected checkpoint of one fold and how it was found."""

    name: str
    state: dict[str, Tensor]
    selected_epoch: int
    validation_auc: float
    validation_log_loss: float
    epochs: int
    history: list[dict[str, float]]
    chosen: dict[str, Any] = field(default_factory=dict)
    """What the validation subjects of the fold have chosen, where several values were tried."""
    source_logits: Tensor | None = None
    """Of all source subjects, by fits without their groups, where validation subjects train too."""
    together: int = 1
    """How many folds trained at the same time."""

    @property
    def validated(self) -> tuple[float, float]:
        """What :func:`brio_core.training.selection.improves` compares."""
        return self.validation_auc, self.validation_log_loss


@dataclass(frozen=True)
class Models:
    """Selected checkpoints of all folds of a run."""

    method: type[Method]
    hyperparameters: Hyperparameters
    names: tuple[str, ...]
    states: tuple[dict[str, Tensor], ...]
    chosen: tuple[dict[str, Any], ...]


def write_models(
    path: Path, problem: Problem, results: Sequence[FoldResult], compress: bool = False
) -> None:
    """Write models.pt: tensors and plain values only, so that it loads without pickled code."""
    content = {
        "format": MODEL_FORMAT,
        "version": MODEL_VERSION,
        "method": problem.trial.method.name,
        "hyperparameters": dict(vars(problem.trial.hyperparameters)),
        "n_rois": problem.data.n_rois,
        "folds": [result.name for result in results],
        "n_sites": [problem.data.n_sites(fold) for fold in problem.data.folds],
        "states": [
            # Interned, so that a fold that was restored is written like one that was not.
            {sys.intern(name): value.cpu().clone() for name, value in result.state.items()}
            for result in results
        ],
        "chosen": [result.chosen for result in results],
    }
    write_tensors(path, content, compress)


def write_tensors(path: Path, content: dict[str, Any], compress: bool = False) -> None:
    """``torch.save`` by way of memory.

    On a full disk torch itself says nothing of the disk, and it writes the name of the temporary
    file into what it saves.
    """
    buffer = io.BytesIO()
    torch.save(content, buffer)
    written = gzip.compress(buffer.getbuffer(), mtime=0) if compress else buffer.getbuffer()
    with atomic(path) as temporary:
        temporary.write_bytes(written)


def read_models(path: str | Path) -> Models:
    """Read models.pt; nothing in it can run code."""
    try:
        stored = Path(path).read_bytes()
        if stored.startswith(_GZIP):
            stored = gzip.decompress(stored)
        content = torch.load(io.BytesIO(stored), map_location="cpu", weights_only=True)
        if (content["format"], content["version"]) != (MODEL_FORMAT, MODEL_VERSION):
            raise ValueError("another format")
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; train the run first") from None
    except Exception as error:
        raise BrioError(
            f"{path} is not a model file of this version ({type(error).__name__}); {MAYBE_OURS}"
        ) from None
    method = registry.find(content["method"])
    hyperparameters = method.Hyperparameters.of(content["hyperparameters"], str(path))
    by_fold = (tuple(content[key]) for key in ("folds", "states", "chosen"))
    return Models(method, hyperparameters, *by_fold)


def write_predictions(
    path: Path, data: TrainingData, logits: Sequence[dict[str, np.ndarray]]
) -> None:
    """Write predictions.csv; ``logits`` has one mapping split -> logits per fold."""
    records = [
        {
            "subject": data.cohort.subjects[row],
            "site": data.cohort.site[row],
            "fold": fold.name,
            "split": split,
            "label": data.label[row],
            "logit": f"{logit:.9g}",
        }
        for fold, values in zip(data.folds, logits)
        for split in ("validation", "test")
        for row, logit in zip(getattr(fold, split), values[split])
    ]
    write_records(path, records)


def write_history(path: Path, results: Sequence[FoldResult]) -> None:
    """Write history.csv: one row per fold and epoch; what was not logged is left empty.

    Hyperparameters that validation has chosen differ between folds, and with them what is logged.
    """
    logged = (name for result in results for name in result.history[0])
    columns = dict.fromkeys(["fold", "epoch", "validation_auc", *logged])
    records = [
        {"fold": result.name, "epoch": epoch, **record}
        for result in results
        for epoch, record in enumerate(result.history, start=1)
    ]
    write_records(path, records, list(columns))


def write_records(
    path: Path, records: Sequence[dict[str, Any]], columns: Sequence[str] | None = None
) -> None:
    """Write a CSV file with one row per record; numbers keep nine digits, NaN is left empty.

    ``columns`` are those of the first record unless they are given; others are not written.
    """

    def written(value: Any) -> Any:
        if not isinstance(value, float):
            return value
        return "" if np.isnan(value) else f"{value:.9g}"

    text = io.StringIO()
    writer = csv.DictWriter(
        text, columns or list(records[0]), extrasaction="ignore", lineterminator="\n"
    )
    writer.writeheader()
    for record in records:
        writer.writerow({name: written(value) for name, value in record.items()})
    write_text(path, text.getvalue())


def fold_logits(problem: Problem, result: FoldResult, fold: Fold) -> dict[str, np.ndarray]:
    """Logits of the validation and test subjects of a fold by its selected checkpoint."""
    module = problem.restored(fold, result.state, result.chosen)
    # Features that all folds share belong to the hyperparameters of the problem.
    shared = None if result.chosen else problem.shared_features

    def logits(rows: np.ndarray) -> np.ndarray:
        return predict_rows(module, problem.inputs, rows, shared)

    found = {part: logits(getattr(fold, part)) for part in ("validation", "test")}
    if result.source_logits is not None:
        left_out = result.source_logits.cpu().numpy()[np.isin(fold.sources, fold.validation)]
        found["validation"][np.isin(fold.validation, fold.sources)] = left_out
    return found


def fold_decision(
    data: TrainingData, result: FoldResult, fold: Fold, validation: np.ndarray
) -> dict[str, Any]:
    """Threshold and recalibration of a fold's logits, by subjects that did not fit them.

    These are the validation subjects, or all source subjects by fits without their groups. The
    groups are named by the folds that test their subjects: sites, or parts of all sites.
    """
    rows, parts = fold.validation, fold.validation_groups
    if result.source_logits is not None:
        rows, parts = fold.sources, fold.on_sources(data.parts.values()).validation_groups
        validation = result.source_logits.cpu().numpy()
    tested = data.parts.items()
    names = [[name for name, own in tested if np.isin(part, own).any()] for part in parts]
    return {**decided(validation.astype(float), data.label[rows]), "validation": names}


def decided(logits: np.ndarray, label: np.ndarray) -> dict[str, Any]:
    """Threshold and recalibration by logits of subjects that did not fit the model."""
    # Networks may answer in thousands; the weak penalty of a calibration is for numbers about one.
    spread = logits.std() or 1.0
    slope, intercept = calibration(torch.as_tensor(logits / spread), torch.as_tensor(label))
    return {
        "threshold": decision_threshold(logits, label),
        "recalibration": {"slope": float(slope / spread), "intercept": intercept},
    }


@torch.no_grad()
def predict_rows(
    module: Method, inputs: dict[str, Tensor], rows: np.ndarray, made: Features | None = None
) -> np.ndarray:
    """Logits of some subjects, a bounded number at a time; ``made`` are features of everyone."""
    if not len(rows):
        return np.zeros(0)
    parts = []
    device = next(itertools.chain(module.parameters(), module.buffers())).device
    for index in torch.as_tensor(rows, device=device).split(256):
        features = gather(made, index) if made else module.features(gather(inputs, index))
        parts.append(module.logits(features).double().cpu().numpy())
    return np.concatenate(parts)
