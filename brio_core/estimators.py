"""The methods for Python, in the manner of scikit-learn: the workflow's code, its numbers.

Fits and predictions need no scikit-learn; parameters, clones and pipelines come from it.
"""

import copy
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import yaml

from brio_core.cohorts.arrays import (
    FEATURES,
    SERIES,
    as_scans,
    cohort_of,
    demo_scans,
    kind_of,
    one_each,
    read_cohort,
    two_classes,
)
from brio_core.cohorts.cohort import Cohort
from brio_core.connectivity import FISHER_Z
from brio_core.evaluation.scores import Decision, probability
from brio_core.evaluation.site_statistics import site_table
from brio_core.methods import registry
from brio_core.methods.linear.base import StandardisedEdges
from brio_core.methods.linear.sites import ELSEWHERE
from brio_core.system.errors import BrioError
from brio_core.system.residence import gather
from brio_core.training.data import TrainingData
from brio_core.training.in_memory import (
    exact_arithmetic,
    fit_folds,
    loso_problem,
    loso_split,
    whole_problem,
)
from brio_core.training.problem import Problem, Trial
from brio_core.training.results import predict_rows

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, clone
    from sklearn.utils.validation import check_is_fitted, validate_data

    BASES: tuple[type, ...] = (ClassifierMixin, BaseEstimator)
except ImportError:
    BASES, validate_data = (), None

DEVICES = ("cpu", "cuda", "auto")
# The hyperparameter of methods that re-estimate connectivity within scans.
RESAMPLES = "reestimates"
# In a clone, and in an installed package.
PRESETS = (Path(__file__).parents[1] / "config" / "methods", Path(__file__).parent / "presets")


def as_value_errors(function: Callable) -> Callable:
    """What the user can solve is a ValueError here, as everywhere in scikit-learn."""

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except BrioError as error:
            raise ValueError(str(error)) from None

    return wrapped


def preset(method: str) -> dict[str, Any]:
    """The hyperparameters of a method as the workflow ships them."""
    registry.find(method)
    files = (folder / f"{method}.yaml" for folder in PRESETS)
    path = next((file for file in files if file.is_file()), None)
    if path is None:
        raise BrioError(f"method {method!r} has no file in {PRESETS[0]}; give all hyperparameters")
    return yaml.safe_load(path.read_text(encoding="utf-8"))["presets"]["common"]


class SiteClassifier(*BASES):
    """One method of the workflow, which chooses and trains as in one fold of leave-one-site-out.

    Scans are a list of (frames, ROIs) arrays, what :func:`load_cohort` gives, or matrices of
    connectivity (subjects, ROIs, ROIs): Fisher z, or correlations with ones on the diagonal. Linear
    methods on connectivity also read plain features (subjects, features), as they are.

    Two sites validate, the first two of the workflow's ring, and the others train. Where the
    hyperparameters say ``selection: sources``, all train and each in turn is left out. Without
    ``sites``, five parts of the subjects with equal shares of the classes stand for them.

    Parameters
    ----------
    method : str
        A name in ``config/methods``.
    hyperparameters : dict, optional
        Values that replace those of the preset ``common``.
    seed : int
        Of initial weights, batches and re-estimates.
    device : ``cpu``, ``cuda`` or ``auto``

    Attributes
    ----------
    classes_ : (2,) array; the second is the positive class
    module_ : the fitted torch module
    decision_ : threshold and recalibration of logits, by subjects that did not fit them
    validation_auc_ : mean AUC over validation sites
    """

    def __init__(
        self,
        method: str = "linear-logarithm",
        hyperparameters: Mapping[str, Any] | None = None,
        seed: int = 0,
        device: str = "cpu",
    ) -> None:
        self.method = method
        self.hyperparameters = hyperparameters
        self.seed = seed
        self.device = device

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    @as_value_errors
    def fit(self, scans: Any, y: Any, sites: Any = None, covariates: Any = None):
        """Train on all scans; ``sites`` names where each was made."""
        if y is None:
            raise BrioError("SiteClassifier requires y to be passed, but the target y is None")
        scans, y = self._read(scans, y)
        self.classes_, label = two_classes(y)
        trial = self._tried(kind_of(scans))
        cohort = _cohort(trial, scans, sites, covariates)
        with exact_arithmetic(self.device, trial) as device:
            problem = whole_problem(cohort, label, trial, device, sites is None)
            (result,), _, (self.decision_,) = fit_folds(problem)
            (fold,) = problem.data.folds
            self.module_ = problem.restored(fold, result.state, result.chosen)
        self.validation_auc_ = result.validation_auc
        self._fitted, self._kind, self.n_features_in_ = trial, kind_of(scans), _width(scans)
        return self

    @as_value_errors
    def decision_function(self, scans: Any, covariates: Any = None) -> np.ndarray:
        """Logits of the positive class; all scans are taken for those of one new site."""
        if BASES:
            check_is_fitted(self)
        scans, _ = self._read(scans)
        if kind_of(scans) != self._kind or _width(scans) != self.n_features_in_:
            raise BrioError(
                f"X has {_width(scans)} features ({kind_of(scans)}), but SiteClassifier is "
                f"expecting {self.n_features_in_} features ({self._kind}) as input"
            )
        cohort = _cohort(self._fitted, scans, None, covariates)
        rows = torch.arange(len(cohort.subjects))
        with exact_arithmetic(self.device, self._fitted) as device, torch.no_grad():
            problem = Problem(TrainingData(cohort, {"label": []}, [], device), self._fitted)
            elsewhere = torch.full_like(rows, ELSEWHERE, device=device)
            unknown = dict.fromkeys(problem.inputs.keys() & {"row", "site_number"}, elsewhere)
            inputs, module = problem.inputs | unknown, self.module_.to(device)
            if getattr(module, "meets_sites", False):
                module = copy.deepcopy(module)
                module.meet(ELSEWHERE, [module.features(gather(inputs, rows.to(device)))])
            return predict_rows(module, inputs, rows.numpy())

    def predict_proba(self, scans: Any, covariates: Any = None) -> np.ndarray:
        """Probabilities (subjects, 2) of the classes."""
        positive = probability(self.decision_function(scans, covariates))
        return np.stack([1 - positive, positive], axis=1)

    def predict(self, scans: Any, covariates: Any = None) -> np.ndarray:
        """The likelier class of each scan; ``decision_`` has a threshold for balanced accuracy."""
        positive = self.decision_function(scans, covariates) > 0
        return self.classes_[positive.astype(int)]

    @as_value_errors
    def score(self, scans: Any, y: Any, covariates: Any = None) -> float:
        """Accuracy."""
        predicted = self.predict(scans, covariates)
        return float(np.mean(predicted == one_each(y, len(predicted), "y")))

    def _tried(self, kind: str) -> Trial:
        if self.device not in DEVICES:
            raise BrioError(f"device is {self.device!r}, but must be cpu, cuda or auto")
        values = preset(self.method) | dict(self.hyperparameters or {})
        method = registry.find(self.method)
        if kind == FEATURES:
            if not issubclass(method, StandardisedEdges):
                raise BrioError(
                    f"{self.method} needs to know the ROIs; give it ROI series or matrices of "
                    "connectivity instead of a table of features"
                )
            # Features are what they are.
            values |= {"connectivity": FISHER_Z}
        hyperparameters = method.Hyperparameters.of(values, f"method {self.method!r}")
        return Trial(method, hyperparameters, self.method, self.seed)

    def _read(self, scans: Any, y: Any = None) -> tuple[Any, Any]:
        """Scans as they are, or plain features as numbers, and labels."""
        scans = as_scans(scans)
        if kind_of(scans) == FEATURES:
            if validate_data is None:
                return np.asarray(scans, float), y
            if y is None:
                return validate_data(self, scans, reset=False), None
            return validate_data(self, scans, y)
        return scans, None if y is None else one_each(y, len(scans), "y")


def _width(scans: Any) -> int:
    return np.shape(scans[0])[-1] if kind_of(scans) == SERIES else scans.shape[-1]


def _cohort(trial: Trial, scans: Any, sites: Any, covariates: Any) -> Cohort:
    needs = trial.method.needed(trial.hyperparameters)
    if kind_of(scans) != SERIES and ("bold" in needs or hasattr(trial.hyperparameters, RESAMPLES)):
        raise BrioError(f"{trial.method.name} reads ROI series, but was given {kind_of(scans)}")
    cohort = cohort_of(scans, sites, covariates, trial.method.min_frames)
    if needs == ("covariates",) and np.isnan(cohort.covariates).all():
        raise BrioError(f"{trial.method.name} reads nothing but covariates; give covariates")
    return cohort


@as_value_errors
def unseen_site_scores(
    estimator: Any,
    scans: Any,
    y: Any,
    sites: Any,
    covariates: Any = None,
    groups: Any = None,
    return_predictions: bool = False,
) -> Any:
    """Scores at every site by models that have not seen it: the table of a leave-one-site-out run.

    A :class:`SiteClassifier` is trained as by the workflow, all folds together. Another estimator
    is fitted on all other sites, fold by fold, by ``fit(scans, y)``.

    Rows and columns are those of :func:`brio_core.evaluation.site_statistics.site_table`. With
    ``return_predictions`` comes a second table: subject, site, label and logit.
    """
    _, label = two_classes(y)
    scans = as_scans(scans)
    scans = np.asarray(scans) if kind_of(scans) == FEATURES else scans
    one_each(label, len(scans), "y")
    groups = one_each(["n/a"] * len(label) if groups is None else groups, len(label), "groups")
    sites = one_each(sites, len(label), "sites").astype(str)
    for site in np.unique(sites):
        if len(np.unique(label[sites == site])) < 2:
            raise BrioError(f"site {str(site)!r} has one class only; leave it out")
    logits, decisions = np.empty(len(label)), {}
    if isinstance(estimator, SiteClassifier):
        trial = estimator._tried(kind_of(scans))
        cohort = _cohort(trial, scans, sites, covariates)
        with exact_arithmetic(estimator.device, trial) as device:
            problem = loso_problem(cohort, label, groups, trial, device)
            _, found, decided = fit_folds(problem)
        for fold, values, decision in zip(problem.data.folds, found, decided):
            logits[fold.test] = values["test"]
            decisions[fold.name] = Decision(decision["threshold"], **decision["recalibration"])
    else:
        cohort = cohort_of(scans, sites)
        for fold in loso_split(cohort, label, groups)["folds"]:
            sources = sorted(fold["train"] + fold["validation"])
            logits[fold["test"]] = _logits_of(estimator, scans, label, sources, fold["test"])
    table = site_table(cohort.site, label, logits, decisions)
    columns = {"subject": cohort.subjects, "site": cohort.site, "label": label, "logit": logits}
    return (table, pd.DataFrame(columns)) if return_predictions else table


def _logits_of(
    estimator: Any, scans: Any, label: np.ndarray, sources: list[int], test: list[int]
) -> np.ndarray:
    """What a fresh copy of another estimator says about a site that it has not seen."""

    def some(rows: list[int]) -> Any:
        return [scans[row] for row in rows] if kind_of(scans) == SERIES else scans[rows]

    fitted = clone(estimator).fit(some(sources), label[sources])
    if hasattr(fitted, "decision_function"):
        return np.asarray(fitted.decision_function(some(test)), float)
    negative, positive = np.clip(fitted.predict_proba(some(test)), 1e-15, 1).T
    return np.log(positive / negative)


load_demo, load_cohort = demo_scans, as_value_errors(read_cohort)
