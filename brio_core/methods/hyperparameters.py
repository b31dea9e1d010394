"""Hyper-parameters of methods: their types, and the training budget that methods share."""

import math
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Literal, get_args, get_origin

from brio_core.connectivity import FISHER_Z, KINDS
from brio_core.system.errors import BrioError

POSITIVE = ("epochs", "batch_size", "subjects_per_site_class", "sites_per_batch",
            "subjects_per_site", "hidden", "layers", "density", "temperature", "rounds",
            "decay_epochs", "neighbours")  # fmt: skip
NOT_NEGATIVE = ("patience", "learning_rate", "weight_decay", "final_learning_rate", "warmup_epochs")


@dataclass(frozen=True)
class Hyperparameters:
    """Base of all hyperparameters. Values come from ``config/methods``; here are the types.

    ``connectivity`` is the kind that a method reads, one of its ``kinds``; ``shrinkage`` is that of
    kinds other than Fisher z. They alone have defaults: the paper's methods read Fisher z. A
    ``Literal`` type lists the choices of a hyperparameter.
    """

    kinds: ClassVar[tuple[str, ...]] = KINDS

    connectivity: str = field(default=FISHER_Z, kw_only=True)
    shrinkage: float = field(default=0.6, kw_only=True)

    def __post_init__(self) -> None:
        for one in fields(self):
            if get_origin(one.type) is Literal:
                check_choice(one.name, getattr(self, one.name), get_args(one.type))
        check_choice("connectivity", self.connectivity, self.kinds)

    @classmethod
    def of(cls, values: dict[str, Any], name: str) -> "Hyperparameters":
        """Build from a mapping; unknown, missing or mistyped keys are errors."""
        types = {field.name: field.type for field in fields(cls)}
        for key in values:
            if key not in types:
                known = ", ".join(types)
                raise BrioError(f"{name}: unknown hyperparameter {key!r}; known: {known}")
        for one in fields(cls):
            if one.name not in values and one.default is MISSING:
                raise BrioError(f"{name}: hyperparameter {one.name!r} is missing")
        checked = {key: typed(values[key], types[key], f"{name}: {key}") for key in values}
        check_ranges(checked, name)
        return cls(**checked)


def check_ranges(values: dict[str, Any], name: str) -> None:
    """Reject numbers that cannot be meant; names that many methods share are known."""
    for key, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if not math.isfinite(value):
            raise BrioError(f"{name}: {key} is {value}, but must be a finite number")
        if key.endswith("dropout") and not 0 <= value < 1:
            raise BrioError(f"{name}: {key} is {value}, but must be at least 0 and below 1")
        if key == "shrinkage" and not 0 < value <= 1:
            raise BrioError(f"{name}: {key} is {value}, but must be above 0 and at most 1")
        if key in POSITIVE and value <= 0:
            raise BrioError(f"{name}: {key} is {value}, but must be above 0")
        if key in NOT_NEGATIVE and value < 0:
            raise BrioError(f"{name}: {key} is {value}, but must not be below 0")


def typed(value: Any, kind: Any, where: str) -> Any:
    """A value from a file as its type has it; one of another type is an error."""
    if get_origin(kind) is Literal:
        check_choice(where, value, get_args(kind))
        return value
    if get_origin(kind) is tuple and isinstance(value, list | tuple):
        return tuple(typed(item, get_args(kind)[0], where) for item in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is not kind:
        many = get_origin(kind) is tuple
        name = f"a list of {get_args(kind)[0].__name__}" if many else kind.__name__
        raise BrioError(f"{where} should be {name}, not {value!r}")
    return value


@dataclass(frozen=True)
class GradientHyperparameters(Hyperparameters):
    """The training budget, shared by every method that is trained by gradient steps.

    ``sampler`` is ``shuffled`` (``batch_size`` subjects) or ``balanced``
    (``subjects_per_site_class`` of every training site and class); a method may offer others:
    ``everyone`` is all training subjects in one step. ``patience`` 0 never stops early. Checkpoints
    before ``first_epoch`` (counted from 1) are not eligible. ``optimiser`` is ``adamw`` or
    ``adam`` (weight decay as part of the gradient). ``schedule`` is ``constant``, or ``cosine``:
    step s of S has half a cosine's value at s / S, so the last one has ``final_learning_rate``.
    ``precision`` is that of matrix products on a GPU: ``tf32``, ``float32``, or ``bfloat16``,
    which also keeps what training remembers of them in half the bytes; evaluation is then in TF32.
    """

    samplers: ClassVar[tuple[str, ...]] = ("shuffled", "balanced")

    epochs: int
    patience: int
    first_epoch: int
    sampler: str
    batch_size: int
    subjects_per_site_class: int
    learning_rate: float
    weight_decay: float
    optimiser: Literal["adamw", "adam"]
    schedule: Literal["constant", "cosine"]
    final_learning_rate: float
    precision: Literal["tf32", "float32", "bfloat16"]

    @property
    def patient_until(self) -> int:
        """The epoch after which ``patience`` counts: the last that is not eligible."""
        return self.first_epoch - 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("sampler", self.sampler, self.samplers)
        if not 1 <= self.first_epoch <= self.epochs:
            raise BrioError(
                f"first_epoch is {self.first_epoch}, but must lie between 1 and epochs "
                f"({self.epochs})"
            )


@dataclass(frozen=True)
class SiteHyperparameters(GradientHyperparameters):
    """The budget of a method whose loss compares sites.

    Its ``sampler`` may also be ``sites``: ``sites_per_batch`` training sites (or all, if there are
    fewer) are drawn in every step, with ``subjects_per_site_class`` subjects of either class.
    """

    samplers: ClassVar[tuple[str, ...]] = ("shuffled", "balanced", "sites")

    sites_per_batch: int


@dataclass(frozen=True)
class EpisodeHyperparameters(GradientHyperparameters):
    """The budget of a method that rehearses unseen sites within every step.

    Its ``sampler`` is ``episodes``: ``sites_per_batch`` training sites (or all, if there are
    fewer) in random order, and ``subjects_per_site`` subjects of each, whatever their class.
    """

    samplers: ClassVar[tuple[str, ...]] = ("episodes",)

    sites_per_batch: int
    subjects_per_site: int


def check_choice(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Reject a value that is not one of the choices."""
    if value not in choices:
        raise BrioError(f"{key} is {value!r}, but must be one of {', '.join(choices)}")
