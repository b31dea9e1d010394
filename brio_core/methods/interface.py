"""The interface of a method. A method is written for one fold, as an ordinary torch module.

The trainer stacks the modules of all folds and runs them under ``torch.func.vmap``. That asks
four things of a method: no branch on tensor values, no ``.item()``, the same shapes in every
fold, and randomness from ``batch.key`` only (:mod:`brio_core.system.randomness`).
"""

from collections.abc import Iterable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from brio_core.cohorts.stores import Rois
from brio_core.connectivity import FISHER_Z
from brio_core.connectivity.kinds import connectivity_of
from brio_core.methods.hyperparameters import Hyperparameters
from brio_core.methods.stack import FoldStack
from brio_core.methods.training_scans import FeatureStore, TrainingScans, TrainView

WARM_UP, TRAIN = "warm-up", "train"

Features = dict[str, Tensor]
# Who chooses the penalty of a path: validation subjects, or all source subjects in turn.
VALIDATION, SOURCES = "validation", "sources"


class Batch(NamedTuple):
    """What a loss sees: features of the batch, labels in {0, 1}, sites from 0, a random key.

    Under the ``balanced`` and ``sites`` samplers the rows are ordered as (site, class, subject),
    under ``episodes`` as (site, subject) with the sites in the order in which they were drawn.
    Under ``sites`` and ``everyone`` a row may be a stand-in for a subject that does not exist: its
    site is -1, and neither a loss nor a norm may count it.
    """

    features: Features
    label: Tensor
    site: Tensor
    key: Tensor


class Method(nn.Module):
    """A method for one fold.

    ``needs`` names what the features are made of: ``fc``, ``bold`` (zero beyond ``frames``),
    ``frames``, ``covariates`` (age, sex, mean framewise displacement; unknown is NaN), ``row``
    (the place of the subject in its cohort, -1 for one from elsewhere), ``site_number`` (that of
    its site in the cohort, or -1; a method that reads it takes out what the site adds to scans).
    ``min_frames`` is the length of the shortest scan that the method can read.
    ``fc`` is Fisher-z connectivity; :meth:`make_features` gets the kind that is asked for, and
    :meth:`connectivity` makes it of what :meth:`prepare` sees.
    ``features_are_shared`` says that :meth:`make_features` uses nothing fitted on the fold.
    ``needs_population`` says that a prediction asks the training subjects: their scans are kept in
    buffers that are not persistent, and :meth:`prepare` runs again before a stored model is used.
    """

    name: ClassVar[str]
    Hyperparameters: ClassVar[type[Hyperparameters]]
    needs: ClassVar[tuple[str, ...]] = ("fc",)
    min_frames: ClassVar[int] = 1
    features_are_shared: ClassVar[bool] = True
    needs_population: ClassVar[bool] = False

    def __init__(self, hyperparameters: Hyperparameters, n_rois: int, n_sites: int) -> None:
        super().__init__()
        self.hyperparameters = hyperparameters
        self.n_rois = n_rois
        self.n_sites = n_sites
        # It gives other kinds the spread of Fisher z, so that hyperparameters keep their meaning.
        rescaled = hyperparameters.connectivity != FISHER_Z and not isinstance(self, PathMethod)
        factor = torch.ones(()) if rescaled else None
        self.register_buffer("connectivity_factor", factor)

    def forward(self, verb: str, *arguments: Any) -> Any:
        """Dispatch by name, because ``functional_call`` knows only ``forward``."""
        return getattr(self, verb)(*arguments)

    @classmethod
    def needed(cls, hyperparameters: Any) -> tuple[str, ...]:
        """``needs``, and what these hyperparameters need beside it."""
        return cls.needs

    @classmethod
    def notes(cls, rois: Rois, hyperparameters: Any) -> list[str]:
        """What the log and the page should say about a run on these regions, in whole sentences."""
        return []

    @classmethod
    def share(cls, scans: TrainingScans, hyperparameters: Any) -> list[Features]:
        """What one pass over the training scans finds out for all folds, one mapping per fold.

        :meth:`prepare` gets the mapping of its fold as ``train.shared``.
        """
        return [{} for _ in scans.rows]

    @classmethod
    def scan_length(cls, hyperparameters: Any, frames: np.ndarray) -> int:
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

    def make_features(self, inputs: Features) -> Features:
        """What is computed once per subject: a function of inputs and fold statistics only."""
        return inputs

    def features(self, inputs: Features, precision: torch.dtype = torch.float64) -> Features:
        """The same from scans as they are stored, with Fisher-z connectivity."""
        if "fc" in inputs:
            inputs = {**inputs, "fc": self.connectivity(inputs["fc"], precision)}
        return self.make_features(inputs)

    def connectivity(self, fisher_z: Tensor, precision: torch.dtype = torch.float64) -> Tensor:
        """Connectivity (..., P, P) of the kind that the hyperparameters name."""
        asked = self.hyperparameters
        found = connectivity_of(fisher_z, asked.connectivity, asked.shrinkage, precision)
        return found if self.connectivity_factor is None else found * self.connectivity_factor

    def represent(self, features: Features) -> Tensor:
        """The representation before the classifier, (B, d)."""
        raise NotImplementedError

    def logits(self, features: Features) -> Tensor:
        """Pre-sigmoid predictions, (B,); sees neither label nor site.

        Unless a method says otherwise, its ``head`` reads the representation and has one logit, or
        two whose margin counts.
        """
        read = self.head(self.represent(features))
        return margin(read) if read.shape[-1] == 2 else read.squeeze(-1)


class GradientMethod(Method):
    """A method trained by gradient steps."""

    def loss(self, batch: Batch, phase: str) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and scalars for the history."""
        raise NotImplementedError

    @classmethod
    def phase(cls, hyperparameters: Any, epoch: int) -> str:
        """The name of the training phase of an epoch (from 1); a phase keeps its loss's shape.

        Hyperparameters that have ``warmup_epochs`` begin with so many of warm-up.
        """
        return WARM_UP if epoch <= getattr(hyperparameters, "warmup_epochs", 0) else TRAIN

    @classmethod
    def frozen(cls, phase: str) -> tuple[str, ...]:
        """Prefixes of parameter names that are not updated in a phase."""
        return ()

    @classmethod
    def restarts(cls, hyperparameters: Any, epoch: int) -> bool:
        """Whether the optimiser forgets its moments before an epoch (from 1)."""
        return False

    @classmethod
    def before_step(
        cls,
        stack: FoldStack,
        scans: TrainingScans,
        hyperparameters: Any,
        step: int,
        steps_per_epoch: int,
    ) -> None:
        """Called for all folds before each step (from 0), e.g. to refresh cached numbers."""

    @classmethod
    def before_selection(cls, stack: FoldStack, features: FeatureStore, rows: Tensor) -> None:
        """Called for all folds before validation; ``rows`` (F, W) are the training subjects.

        A fold with fewer subjects than others is padded with row -1.
        """

    @classmethod
    def gradient(
        cls, hyperparameters: Any, loss: Any, learnt: dict[str, Tensor], buffers: Any, batch: Batch
    ) -> Any:
        """The gradients of all folds by ``loss(learnt, buffers, batch)``, and (losses, logs).

        Everything has a leading fold axis. Override it for a step that is not the plain gradient
        of the loss; ``loss`` also takes a ``phase`` in place of the current one.
        """
        value, logs = loss(learnt, buffers, batch)
        return slopes(value, learnt), (value, logs)


def slopes(value: Tensor, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Gradients of the losses of folds, each by the weights of its own fold."""
    found = torch.autograd.grad(value.sum(), list(weights.values()), materialize_grads=True)
    return dict(zip(weights, found))


class PathMethod(Method):
    """A method that is fitted exactly, once per point of a path of penalties.

    Points are ordered from the strongest penalty on, so that the common rule, ties to the lower
    log-loss and then to the earliest, prefers the stronger penalty. An exact fit has no seed: all
    seeds give the same.

    ``representation_is_shared`` says that :meth:`represent` is the same at all points of the path.
    With ``selection: sources`` among its hyperparameters, all source sites train, and
    ``inner_predictions`` (points, N) of fits without each inner fold choose the point.
    """

    representation_is_shared: ClassVar[bool] = True

    @classmethod
    def uses_all_threads(cls, n_subjects: int) -> bool:
        """Whether one fold with so many training subjects is work for all threads."""
        return False

    @property
    def meets_sites(self) -> bool:
        """Whether :meth:`meet` is called for every site that did not train, before it is tested."""
        return False

    def meet(self, number: int, scans: Iterable[Features]) -> None:
        """Adapt to a site by the features of all its scans; its labels are not there."""
        raise NotImplementedError

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
    """Mean binary cross-entropy, Eq. (classification_loss) for site-classes of equal size."""
    return functional.binary_cross_entropy_with_logits(logits, label.to(logits.dtype))


def margin(logits: Tensor) -> Tensor:
    """The difference of two logits (..., 2), all that a softmax over them depends on."""
    return logits[..., 1] - logits[..., 0]
