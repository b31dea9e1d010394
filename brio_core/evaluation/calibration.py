"""Do predicted probabilities mean what they say? Three answers from labels and logits."""

import numpy as np

STEPS = 100


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
