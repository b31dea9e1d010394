"""Risk and coverage: what the predictions of those are worth who are kept.

The least certain subjects of every site are set aside, so that each site keeps the same share and
counts as much as before. Certainty is the stability of a decision (how many re-estimates of the
scan agree, then how little its logit moves), or the distance of the logit from the threshold, which
orders subjects as a probability does.
"""

import math

import numpy as np

from brio_core.evaluation.scores import auc

STABILITY, PROBABILITY = "stability", "probability"
SHARES = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5)


def most_certain_first(
    by: str, margin: np.ndarray, agreement: np.ndarray, deviation: np.ndarray
) -> np.ndarray:
    """The order in which subjects are kept; equally certain ones stay in their order."""
    if by == STABILITY:
        return np.lexsort((deviation, -np.asarray(agreement)))
    return np.argsort(-np.abs(margin), kind="stable")


def curve(label: np.ndarray, margin: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Accuracy and AUC (2, shares) of the subjects of a site that are kept; NaN without a class.

    ``margin`` is the logit minus the threshold.
    """
    label, margin = np.asarray(label), np.asarray(margin, float)
    found = []
    for share in SHARES:
        # Rounding must not keep one more than the share says.
        kept = order[: max(1, math.ceil(share * len(order) - 1e-9))]
        right = (margin[kept] > 0) == (label[kept] == 1)
        found.append((right.mean(), auc(label[kept], margin[kept])))
    return np.array(found, float).T
