"""Scores from stored predictions, by fold: ranking, decisions, calibration.

A fold is a held-out site under ``loso`` and one of ten parts under ``id``. ``logits`` has one row
per training seed: a fold's score is the average over seeds, and folds are summarised after that.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

STEPS = 100
"""Newton steps that a calibration slope may take."""


class Estimate(NamedTuple):
    """A value and its 95 % interval."""

    value: float
    low: float
    high: float


def midranks(score: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal scores share the mean of their ranks."""
    _, inverse, counts = np.unique(score, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def placements(label: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each positive the share of negatives below it, for each negative that of positives above.

    Ties count one half. Both averages are the AUC.
    """
    label, score = np.asarray(label), np.asarray(score, float)
    positive = label == 1
    ranks = midranks(score)
    n_positive, n_negative = positive.sum(), (~positive).sum()
    below = (ranks[positive] - midranks(score[positive])) / n_negative
    above = 1 - (ranks[~positive] - midranks(score[~positive])) / n_positive
    return below, above


def auc(label: np.ndarray, score: np.ndarray) -> float:
    """Area under the ROC curve; NaN where one class is missing."""
    label, score = np.asarray(label), np.asarray(score, float)
    if len(np.unique(label)) < 2:
        return float("nan")
    positive = label == 1
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    rank_sum = midranks(score)[positive].sum()
    return float((rank_sum - n_positive * (n_positive + 1) / 2) / (n_positive * n_negative))


def accuracy(label: np.ndarray, logit: np.ndarray) -> float:
    """Share of subjects on the right side of probability 0.5 (a logit of 0 says class 0)."""
    return float(np.mean((np.asarray(logit) > 0) == (np.asarray(label) == 1)))


def sensitivity(label: np.ndarray, logit: np.ndarray) -> float:
    """Share of class 1 that is found; NaN where there is none."""
    return _share(np.asarray(logit)[np.asarray(label) == 1] > 0)


def specificity(label: np.ndarray, logit: np.ndarray) -> float:
    """Share of class 0 that is left alone; NaN where there is none."""
    return _share(np.asarray(logit)[np.asarray(label) == 0] <= 0)


def _share(hits: np.ndarray) -> float:
    return float(hits.mean()) if len(hits) else float("nan")


def balanced_accuracy(label: np.ndarray, logit: np.ndarray) -> float:
    """Mean of sensitivity and specificity."""
    return (sensitivity(label, logit) + specificity(label, logit)) / 2


def probability(logit: np.ndarray) -> np.ndarray:
    """The probability of class 1."""
    return 0.5 * (1 + np.tanh(np.asarray(logit, float) / 2))


def brier(label: np.ndarray, logit: np.ndarray) -> float:
    """Mean squared difference of probability and label: 0 is perfect, 0.25 is always saying 0.5."""
    return float(np.mean((probability(logit) - np.asarray(label)) ** 2))


def calibration_in_the_large(label: np.ndarray, logit: np.ndarray) -> float:
    """Mean predicted probability minus the share of class 1; above 0 predicts class 1 too often."""
    return float(probability(logit).mean() - np.mean(label))


def calibration_slope(label: np.ndarray, logit: np.ndarray) -> float:
    """Slope of a logistic regression of the label on the logit.

    1 is calibrated, below 1 is overconfident. NaN where a class is missing, where all logits are
    equal, or where the classes do not overlap, so that the slope has no end.
    """
    label, logit = np.asarray(label, float), np.asarray(logit, float)
    centre = np.median(logit)
    # Of the middle, so that one logit far out does not blur the others.
    spread = np.median(np.abs(logit - centre)) or logit.std()
    positive, negative = logit[label == 1], logit[label == 0]
    if not len(positive) or not len(negative) or spread == 0:
        return float("nan")
    if positive.min() >= negative.max() or positive.max() <= negative.min():
        return float("nan")
    design = np.stack([np.ones_like(logit), (logit - centre) / spread], 1)
    weights = np.zeros(2)
    for _ in range(STEPS):
        fitted = probability(design @ weights)
        curvature = (design * (fitted * (1 - fitted))[:, None]).T @ design
        step = np.linalg.solve(curvature, design.T @ (label - fitted))
        if np.abs(step).max() < 1e-9 * max(1.0, np.abs(weights).max()):
            return float(weights[1] / spread)
        # A full Newton step can overshoot where the classes hardly overlap.
        least, size = _log_likelihood(label, design @ weights) - 1e-12, 1.0
        while size > 1e-9 and _log_likelihood(label, design @ (weights + size * step)) < least:
            size /= 2
        weights = weights + size * step
    return float("nan")


def _log_likelihood(label: np.ndarray, logit: np.ndarray) -> float:
    return float(np.sum(label * logit - np.logaddexp(0, logit)))


MEASURES = {
    "auc": auc,
    "acc": accuracy,
    "sensitivity": sensitivity,
    "specificity": specificity,
    "balanced_accuracy": balanced_accuracy,
    "brier": brier,
    "calibration_in_the_large": calibration_in_the_large,
    "calibration_slope": calibration_slope,
}


AT_THRESHOLD = ("acc", "sensitivity", "specificity", "balanced_accuracy")
"""Measures that are also taken at the threshold that validation chose."""
RECALIBRATED = ("brier", "calibration_in_the_large", "calibration_slope")
"""Measures that are also taken after recalibration on validation subjects."""
COLUMNS = (
    *MEASURES,
    *(f"{name}_threshold" for name in AT_THRESHOLD),
    *(f"{name}_recalibrated" for name in RECALIBRATED),
)


class Decision(NamedTuple):
    """What validation says about the logits of a fold; NaN where there was none."""

    threshold: float = math.nan
    slope: float = math.nan
    intercept: float = math.nan


def score_folds(
    fold: np.ndarray,
    label: np.ndarray,
    logits: np.ndarray,
    decisions: Sequence[Mapping[str, Decision]] | None = None,
) -> pd.DataFrame:
    """What each fold scored, averaged over seeds, from the test logits (seeds, subjects).

    ``decisions`` has one mapping of folds per seed. Folds are rows in alphabetical order; ``auc``
    is NaN where a class is missing.
    """
    fold, label, logits = np.asarray(fold), np.asarray(label), np.atleast_2d(logits)
    rows = []
    for name in sorted(set(fold.tolist())):
        own = fold == name
        row = {"fold": name, "n": own.sum(), "positives": (label[own] == 1).sum()}
        chosen = [one.get(name, Decision()) for one in decisions or [{}] * len(logits)]
        scores = [_scores(label[own], one[own], how) for one, how in zip(logits, chosen)]
        rows.append(row | {key: np.mean([one[key] for one in scores]) for key in COLUMNS})
    return pd.DataFrame(rows)


def _scores(label: np.ndarray, logit: np.ndarray, chosen: Decision) -> dict[str, float]:
    """All measures of one fold and seed; those that need a decision are NaN without one."""
    found = {name: score(label, logit) for name, score in MEASURES.items()}
    if math.isnan(chosen.threshold):
        return dict.fromkeys(COLUMNS, math.nan) | found
    shifted, scaled = logit - chosen.threshold, chosen.slope * logit + chosen.intercept
    found |= {f"{name}_threshold": MEASURES[name](label, shifted) for name in AT_THRESHOLD}
    return found | {f"{name}_recalibrated": MEASURES[name](label, scaled) for name in RECALIBRATED}


def usable(scores: pd.DataFrame) -> pd.DataFrame:
    """The folds with both classes; only these enter means and deviations."""
    return scores[scores["auc"].notna()]
