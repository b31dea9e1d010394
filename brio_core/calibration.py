"""Do predicted probabilities mean what they say? Three answers from labels and logits."""

import numpy as np

STEPS = 100
LONGEST_STEP = 2.0


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
    spread = logit.std()
    positive, negative = logit[label == 1], logit[label == 0]
    if not len(positive) or not len(negative) or spread == 0:
        return float("nan")
    if positive.min() >= negative.max() or positive.max() <= negative.min():
        return float("nan")
    design = np.stack([np.ones_like(logit), (logit - logit.mean()) / spread], 1)
    weights = np.zeros(2)
    for _ in range(STEPS):
        fitted = probability(design @ weights)
        curvature = (design * (fitted * (1 - fitted))[:, None]).T @ design
        step = np.linalg.solve(curvature, design.T @ (label - fitted))
        # A full Newton step can overshoot where the classes hardly overlap.
        weights += step * min(1.0, LONGEST_STEP / max(np.abs(step).max(), 1e-300))
        if np.abs(step).max() < 1e-10:
            return float(weights[1] / spread)
    return float("nan")
