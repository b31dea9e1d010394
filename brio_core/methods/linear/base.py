"""What the linear rows have in common: one weight per feature, fitted to convergence."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn

from brio_core.cohorts.stores import Rois
from brio_core.connectivity.graphs import upper_triangle
from brio_core.connectivity.tangent import CHUNK
from brio_core.methods.hyperparameters import Hyperparameters
from brio_core.methods.interface import Features, PathMethod
from brio_core.methods.linear import iterative
from brio_core.methods.linear.exact import Path, balanced_weights, logistic_path, ridge_grid
from brio_core.methods.linear.sites import EVERY_SITE, NONE, Centring
from brio_core.methods.training_scans import TrainView
from brio_core.system.blocks import mean_and_scale, replace_columns
from brio_core.system.threads import spread

# Subjects whose scans are in memory at a time; a multiple of those that are worked on together.
SUBJECTS_READ = 16 * CHUNK
# What views of sites may read of a subject, beside its edges.
ABOUT_SITES = ("site_number", "covariates")
BY_ITS_SCANS = "by its own unlabelled scans, so a test subject's score depends on the others there"
# An exact fit takes time by the cube of the subjects, and up to two designs in memory. With 20,000
# features, iterations take less time from below 2,000 subjects on (ridge), and from 2,300 (white
# noise) to 7,500 (the spectrum of real scans) on (logistic).
EXACT_SUBJECTS = 4000
# With so few features, a fit by their covariance is exact, small and linear in the subjects.
EXACT_FEATURES = 1000


def is_exact(subjects: int, features: int) -> bool:
    """Whether a fit is exact, with a design in float64, or iterative, with one in float32."""
    return subjects <= EXACT_SUBJECTS or features <= EXACT_FEATURES


@dataclass(frozen=True)
class LogisticHyperparameters(Hyperparameters):
    """``penalties``: inverse strengths C of the l2 penalty, strongest penalty first."""

    penalties: tuple[float, ...]


@dataclass(frozen=True)
class SitesHyperparameters(Hyperparameters):
    """What rows that read edges are told about sites.

    ``selection`` is ``validation``: validation sites choose the penalty, and the others train. Or
    it is ``sources``: all of them train, and each in turn is left out to choose the penalty.
    ``centre`` is ``none``, or each site has its mean subtracted: of ``train-sites``, where others
    have the mean of these means subtracted, or of ``every-site``, by its unlabelled scans.
    """

    selection: Literal["validation", "sources"]
    centre: Literal["none", "train-sites", "every-site"]


class LinearMethod(PathMethod):
    """l2 logistic regression on the representation that a subclass gives."""

    Hyperparameters = LogisticHyperparameters

    def __init__(
        self, hyperparameters: Hyperparameters, n_rois: int, n_sites: int, n_features: int
    ) -> None:
        super().__init__(hyperparameters, n_rois, n_sites)
        self.weight = nn.Parameter(torch.zeros(n_features), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(()), requires_grad=False)

    @classmethod
    def uses_all_threads(cls, n_subjects: int) -> bool:
        # Each fold holds a large design: two at once would not fit either.
        return n_subjects > EXACT_SUBJECTS

    @property
    def path_length(self) -> int:
        return len(self.hyperparameters.penalties)

    def design(self, subjects: "TrainFeatures", table: Tensor) -> None:
        """Fit what the representation needs; fill ``table`` (N, D) with the training subjects'."""
        raise NotImplementedError

    def solve(self, design: Tensor, train: TrainView) -> Path:
        """Weights and intercepts of all points; an exact fit has a design in float64."""
        path = logistic_path if design.dtype == torch.float64 else iterative.logistic_path
        return path(design, train.label, self.hyperparameters.penalties)

    def left_out(self, design: Tensor, train: TrainView) -> Tensor:
        """What fits without each subject's inner fold predict for it (points, N)."""
        found = design.new_empty(self.path_length, len(design), dtype=torch.float64)
        offsets = self.inner_offsets(train)
        for inner in train.inner_folds.unique():
            out = train.inner_folds == inner
            own = {"site": train.site[~out], "label": train.label[~out], "inner_folds": None}
            weights, biases = self.solve(design[~out], replace(train, **own))
            rows = design[out].double() + (0 if offsets is None else offsets[inner])
            found[:, out] = self.scaled_weights(weights) @ rows.T + biases[:, None]
        return found

    def inner_offsets(self, train: TrainView) -> Tensor | None:
        """What the design (folds, D) of inner folds lacks, were they not among the training."""
        return None

    def scaled_weights(self, weights: Tensor) -> Tensor:
        """Weights (points, D) of the design, from what :meth:`solve` gives."""
        return weights

    def prepare(self, train: TrainView) -> None:
        shape = (len(train.label), len(self.weight))
        kind = torch.float64 if is_exact(*shape) else torch.float32
        table = torch.empty(shape, dtype=kind, device=train.label.device)
        self.design(TrainFeatures(self, train), table)
        self._weights, self._biases = self.solve(table, train)
        if train.inner_folds is not None:
            self.inner_predictions = self.left_out(table, train)

    def fit(self, point: int) -> None:
        self.weight.copy_(self._weights[point])
        self.bias.copy_(self._biases[point])

    def rescale(self, slope: float, intercept: float) -> None:
        """Replace every prediction p by ``slope * p + intercept``."""
        self.weight.mul_(slope)
        self.bias.mul_(slope).add_(intercept)

    def classify(self, represented: Tensor) -> Tensor:
        # Sums in single precision would depend on how many subjects are asked about at once.
        found = represented.double() @ self.weight.double() + self.bias.double()
        return found.to(represented.dtype)


class TrainFeatures:
    """Features of the training subjects, a few subjects at a time."""

    def __init__(self, method: LinearMethod, train: TrainView) -> None:
        self._method = method
        self._train = train

    def each(self, work: Callable[[slice, Features], None]) -> None:
        """Call ``work(rows, features)`` for all subjects, several times at once on threads."""
        first = 0
        for chunk in self._train.chunks(SUBJECTS_READ):
            count = len(next(iter(chunk.values())))
            parts = [slice(at, min(at + CHUNK, count)) for at in range(0, count, CHUNK)]
            call = partial(self._call, work, chunk, first)
            spread(call, parts, self._train.label.device)
            first += count

    def _call(self, work: Callable, chunk: Features, first: int, part: slice) -> None:
        features = {name: value[part] for name, value in chunk.items()}
        if self._train.features is None:
            features = self._method.features(features)
        work(slice(first + part.start, first + part.stop), features)


class StandardisedEdges(LinearMethod):
    """The FC of all pairs of ROIs, standardised on training subjects.

    What sites add is taken out before, where there is a view of ``sites``.
    """

    def __init__(self, hyperparameters: Hyperparameters, n_rois: int, n_sites: int) -> None:
        n_features = n_rois * (n_rois - 1) // 2
        super().__init__(hyperparameters, n_rois, n_sites, n_features)
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.zeros(n_features))
        self.sites = self.site_view(n_features)

    @classmethod
    def needed(cls, hyperparameters: Hyperparameters) -> tuple[str, ...]:
        centred = getattr(hyperparameters, "centre", NONE) != NONE
        return (*cls.needs, "site_number") if centred else cls.needs

    @classmethod
    def notes(cls, rois: Rois, hyperparameters: Hyperparameters) -> list[str]:
        every = getattr(hyperparameters, "centre", NONE) == EVERY_SITE
        return [f"Each new site is centred {BY_ITS_SCANS}."] if every else []

    def site_view(self, n_features: int) -> Centring | None:
        """What takes out of features what sites add."""
        centre = self.hyperparameters.centre
        return None if centre == NONE else Centring(n_features, meets=centre == EVERY_SITE)

    @property
    def meets_sites(self) -> bool:
        return self.sites is not None and self.sites.meets

    def make_features(self, inputs: Features) -> Features:
        about = {name: inputs[name] for name in ABOUT_SITES if name in inputs}
        return {"edges": upper_triangle(inputs["fc"]), **about}

    def design(self, subjects: "TrainFeatures", table: Tensor) -> None:
        parts: dict[int, Features] = {}

        def fill(rows: slice, features: Features) -> None:
            table[rows] = features["edges"]
            parts[rows.start] = {name: one for name, one in features.items() if name in ABOUT_SITES}

        subjects.each(fill)
        about = _about_sites([parts[start] for start in sorted(parts)])
        if self.sites is not None:
            self.sites.fit(table, about)

        def standardise(columns: slice, values: Tensor) -> Tensor:
            if self.sites is not None:
                values = self.sites(values, about, columns)
            mean, scale = mean_and_scale(values)
            self.mean[columns], self.scale[columns] = mean, scale
            return (values - mean).mul_(scale)

        replace_columns(table, standardise)

    def meet(self, number: int, scans: Iterable[Features]) -> None:
        scans = list(scans)
        table = torch.cat([part["edges"] for part in scans])
        self.sites.meet(number, table, _about_sites(scans))

    def inner_offsets(self, train: TrainView) -> Tensor | None:
        """An inner fold that is a site was centred by its own mean, as an unseen one is not."""
        if self.sites is None or self.meets_sites:
            return None
        folds, shift = train.inner_folds, self.sites.shift.double()
        found = shift.new_zeros(int(folds.max()) + 1, shift.shape[1])
        for inner in folds.unique():
            inside = train.site[folds == inner].unique()
            if len(inside) == 1 and not (train.site[folds != inner] == inside).any():
                others = (shift[1:].sum(0) - shift[1 + inside[0]]) / max(1, len(shift) - 2)
                found[inner] = (shift[1 + inside[0]] - others) * self.scale
        return found

    def represent(self, features: Features) -> Tensor:
        values = features["edges"]
        if self.sites is not None:
            values = self.sites(values, features)
        return (values - self.mean) * self.scale


def _about_sites(parts: Sequence[Features]) -> Features:
    """What views of sites read, of several parts of the subjects."""
    names = [name for name in ABOUT_SITES if name in parts[0]]
    return {name: torch.cat([part[name] for part in parts]) for name in names}


@dataclass(frozen=True)
class RidgeHyperparameters(SitesHyperparameters):
    """``penalties``: strengths alpha, largest first."""

    penalties: tuple[float, ...]


class Ridge(StandardisedEdges):
    """Ridge regression in which every site and class weighs the same; labels are -1 and 1."""

    Hyperparameters = RidgeHyperparameters

    def scales(self) -> Tensor:
        """Factors (S, D) of the standardised edges; all of them are tried with every penalty."""
        return torch.ones_like(self.scale, dtype=torch.float64)[None]

    def solve(self, design: Tensor, train: TrainView) -> Path:
        target, sample = 2 * train.label - 1, balanced_weights(train.site, train.label)
        scales, penalties = self.scales(), self.hyperparameters.penalties
        if design.dtype == torch.float64:
            inner = train.inner_folds
            offsets = None if inner is None else self.inner_offsets(train)
            weights, biases, left_out = ridge_grid(
                design, target, sample, scales, penalties, inner, offsets
            )
            if left_out is not None:
                self._left_out = left_out.transpose(0, 1).flatten(0, 1)
        else:
            weights, biases = iterative.ridge_grid(design, target, sample, scales, penalties)
        # Scales are the inner loop of the path.
        return weights.transpose(0, 1).flatten(0, 1), biases.T.flatten()

    def scaled_weights(self, weights: Tensor) -> Tensor:
        return weights * self.scales().repeat(len(self.hyperparameters.penalties), 1)

    def left_out(self, design: Tensor, train: TrainView) -> Tensor:
        # An exact fit has found them on its way.
        exact = design.dtype == torch.float64
        return self._left_out if exact else super().left_out(design, train)
