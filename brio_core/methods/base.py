"""The interface of a method. A method is written for one fold, as an ordinary torch module.

The trainer stacks the modules of all folds and runs them under ``torch.func.vmap``. That asks
four things of a method: no branch on tensor values, no ``.item()``, the same shapes in every
fold, and randomness from ``batch.key`` only (:mod:`brio_core.randomness`).
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, get_args, get_origin

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import grad_and_value
from torch.nn import functional

from brio_core.cohort import TrainView
from brio_core.errors import BrioError

if TYPE_CHECKING:
    from brio_core.folds import FoldStack
    from brio_core.sources import FeatureStore, Sources

Features = dict[str, Tensor]


class Batch(NamedTuple):
    """What a loss sees: features of the batch, labels in {0, 1}, sites from 0, a random key.

    Under the ``balanced`` and ``sites`` samplers the rows are ordered as (site, class, subject),
    under ``episodes`` as (site, subject) with the sites in the order in which they were drawn.
    Under ``sites`` and ``everyone`` a row may be a stand-in for a subject that does not exist: its
    site is -1, and no loss may count it.
    """

    features: Features
    label: Tensor
    site: Tensor
    key: Tensor


@dataclass(frozen=True)
class Settings:
    """Base of all hyper-parameters. Values come from ``config/methods``; here are the types."""

    @classmethod
    def of(cls, values: dict[str, Any], name: str) -> "Settings":
        """Build from a mapping; unknown, missing or mistyped keys are errors."""
        types = {field.name: field.type for field in fields(cls)}
        for key in values:
            if key not in types:
                raise BrioError(f"{name}: unknown setting {key!r}; known: {', '.join(types)}")
        for key in types:
            if key not in values:
                raise BrioError(f"{name}: setting {key!r} is missing")
        checked = {key: _typed(values[key], types[key], f"{name}: {key}") for key in types}
        return cls(**checked)


def _typed(value: Any, kind: Any, where: str) -> Any:
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(_typed(item, get_args(kind)[0], where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        raise BrioError(f"{where} should be {getattr(kind, '__name__', kind)}, not {value!r}")
    return value


@dataclass(frozen=True)
class GradientSettings(Settings):
    """The training budget, shared by every method that is trained by gradient steps.

    ``sampler`` is ``shuffled`` (``batch_size`` subjects) or ``balanced`` (``subjects_per_cell``
    subjects of every training site and class); a method may offer others: ``everyone`` is all
    training subjects in one step. ``patience`` 0 never stops early. Checkpoints
    before ``first_epoch`` (counted from 1) are not eligible. ``optimiser`` is ``adamw`` or
    ``adam`` (weight decay as part of the gradient). ``schedule`` is ``constant``, or ``cosine``:
    from ``learning_rate`` in the first step to ``final_learning_rate`` after the last one.
    ``precision`` is that of matrix products on a GPU: ``tf32``, ``float32``, or ``bfloat16``,
    which also keeps what training remembers of them in half the bytes; evaluation is then in TF32.
    """

    samplers: ClassVar[tuple[str, ...]] = ("shuffled", "balanced")

    epochs: int
    patience: int
    first_epoch: int
    sampler: str
    batch_size: int
    subjects_per_cell: int
    learning_rate: float
    weight_decay: float
    optimiser: str
    schedule: str
    final_learning_rate: float
    precision: str

    def __post_init__(self) -> None:
        check_choice("sampler", self.sampler, self.samplers)
        check_choice("optimiser", self.optimiser, ("adamw", "adam"))
        check_choice("schedule", self.schedule, ("constant", "cosine"))
        check_choice("precision", self.precision, ("tf32", "float32", "bfloat16"))
        if not 1 <= self.first_epoch <= self.epochs:
            raise BrioError(
                f"first_epoch is {self.first_epoch}, but must lie between 1 and epochs "
                f"({self.epochs})"
            )


@dataclass(frozen=True)
class SiteSettings(GradientSettings):
    """The budget of a method whose loss compares sites.

    Its ``sampler`` may also be ``sites``: ``sites_per_batch`` training sites (or all, if there are
    fewer) are drawn in every step, and ``subjects_per_cell`` subjects of either class from each.
    """

    samplers: ClassVar[tuple[str, ...]] = ("shuffled", "balanced", "sites")

    sites_per_batch: int


@dataclass(frozen=True)
class EpisodeSettings(GradientSettings):
    """The budget of a method that rehearses unseen sites within every step.

    Its ``sampler`` is ``episodes``: ``sites_per_batch`` training sites (or all, if there are
    fewer) in random order, and ``subjects_per_site`` subjects of each, whatever their class.
    """

    samplers: ClassVar[tuple[str, ...]] = ("episodes",)

    sites_per_batch: int
    subjects_per_site: int


def check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Reject a setting that is not one of its possible words."""
    if value not in choices:
        raise BrioError(f"{key} is {value!r}, but must be one of {', '.join(choices)}")


class Method(nn.Module):
    """A method for one fold.

    ``needs`` names what the features are made of: ``fc``, ``bold`` (zero beyond ``frames``),
    ``frames``, ``covariates`` (age, sex, mean framewise displacement; unknown is NaN), ``row``
    (the place of the subject in its cohort, -1 for a stranger).
    ``min_frames`` is the length of the shortest scan that the method can read.
    ``features_are_shared`` says that :meth:`features` uses nothing fitted on the fold.
    ``needs_population`` says that a prediction asks the training subjects: their scans are kept in
    buffers that are not persistent, and :meth:`prepare` runs again before a stored model is used.
    """

    name: ClassVar[str]
    Settings: ClassVar[type[Settings]]
    needs: ClassVar[tuple[str, ...]] = ("fc",)
    min_frames: ClassVar[int] = 1
    features_are_shared: ClassVar[bool] = True
    needs_population: ClassVar[bool] = False

    def __init__(self, settings: Settings, n_rois: int, n_sites: int) -> None:
        super().__init__()
        self.settings = settings
        self.n_rois = n_rois
        self.n_sites = n_sites

    def forward(self, verb: str, *arguments: Any) -> Any:
        """Dispatch by name, because ``functional_call`` knows only ``forward``."""
        return getattr(self, verb)(*arguments)

    @classmethod
    def share(cls, sources: "Sources", settings: Any) -> list[Features]:
        """What one pass over the training scans finds out for all folds, one mapping per fold.

        :meth:`prepare` gets the mapping of its fold as ``train.shared``.
        """
        return [{} for _ in sources.rows]

    @classmethod
    def scan_length(cls, settings: Any, frames: np.ndarray) -> int:
        """A length that sizes parameters, from the training scans' lengths; 0 if there is none.

        Only folds with the same length are stacked.
        """
        return 0

    def prepare(self, train: TrainView) -> None:
        """Fit fold statistics and keep them as buffers; sees training subjects only.

        Parameters whose shape depends on the fold are made here too, under the fold's seed.
        """

    def load_state_dict(self, state_dict: Any, *arguments: Any, **options: Any) -> Any:
        """Load a state; tensors whose size :meth:`prepare` decides take it from the state."""
        present = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        for name, value in state_dict.items():
            if name in present and present[name].shape != value.shape:
                path, _, leaf = name.rpartition(".")
                resized = present[name].new_empty(value.shape)
                is_parameter = isinstance(present[name], nn.Parameter)
                setattr(
                    self.get_submodule(path),
                    leaf,
                    nn.Parameter(resized) if is_parameter else resized,
                )
        return super().load_state_dict(state_dict, *arguments, **options)

    def features(self, inputs: Features) -> Features:
        """What is computed once per subject: a function of inputs and fold statistics only."""
        return inputs

    def represent(self, features: Features) -> Tensor:
        """The representation before the classifier, (B, d)."""
        raise NotImplementedError

    def logits(self, features: Features) -> Tensor:
        """Pre-sigmoid predictions, (B,); sees neither label nor site."""
        raise NotImplementedError


class GradientMethod(Method):
    """A method trained by gradient steps."""

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and scalars for the history."""
        raise NotImplementedError

    @classmethod
    def phase(cls, settings: Any, epoch: int) -> str:
        """The name of the training phase of an epoch (from 1); a phase keeps its loss's shape."""
        return "train"

    @classmethod
    def frozen(cls, phase: str) -> tuple[str, ...]:
        """Prefixes of parameter names that are not updated in a phase."""
        return ()

    @classmethod
    def restarts(cls, settings: Any, epoch: int) -> bool:
        """Whether the optimiser forgets its moments before an epoch (from 1)."""
        return False

    @classmethod
    def before_step(
        cls, stack: "FoldStack", sources: "Sources", settings: Any, step: int, steps_per_epoch: int
    ) -> None:
        """Called for all folds before each step (from 0), e.g. to refresh cached numbers."""

    @classmethod
    def before_selection(cls, stack: "FoldStack", features: "FeatureStore", rows: Tensor) -> None:
        """Called for all folds before validation; ``rows`` (F, W) are the training subjects.

        A fold with fewer subjects than others is padded with row -1.
        """

    @classmethod
    def gradient(
        cls, settings: Any, loss: Any, learnt: dict[str, Tensor], buffers: Any, batch: Batch
    ) -> Any:
        """The gradient of one fold by ``loss(learnt, buffers, batch)``, and (loss, logs).

        Override it for a step that is not the plain gradient of the loss; ``loss`` also takes a
        ``phase`` in place of the current one.
        """
        return grad_and_value(loss, has_aux=True)(learnt, buffers, batch)


class PathMethod(Method):
    """A method that is fitted exactly, once per point of a path of penalties.

    Points are ordered from the strongest penalty on, so that the common rule, ties to the
    earliest, prefers the stronger penalty. An exact fit has no seed: all seeds give the same.

    ``representation_is_shared`` says that :meth:`represent` is the same at all points of the path.
    """

    representation_is_shared: ClassVar[bool] = True

    @classmethod
    def uses_all_threads(cls, n_subjects: int) -> bool:
        """Whether one fold with so many training subjects is work for all threads."""
        return False

    @property
    def path_length(self) -> int:
        """Number of points on the path."""
        raise NotImplementedError

    def fit(self, point: int) -> None:
        """Set the parameters for one point, from what :meth:`prepare` kept."""
        raise NotImplementedError

    def classify(self, represented: Tensor) -> Tensor:
        """Pre-sigmoid predictions (B,) from representations (B, d)."""
        raise NotImplementedError

    def logits(self, features: Features) -> Tensor:
        return self.classify(self.represent(features))


def binary_cross_entropy(logits: Tensor, label: Tensor) -> Tensor:
    """Mean binary cross-entropy, Eq. (classification_loss) for equally filled cells."""
    return functional.binary_cross_entropy_with_logits(logits, label.to(logits.dtype))


def margin(logits: Tensor) -> Tensor:
    """The difference of two logits (..., 2), all that a softmax over them depends on."""
    return logits[..., 1] - logits[..., 0]


def initialise(build: Any, seed: int) -> Method:
    """Build a module whose initial weights depend on ``seed`` alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()
