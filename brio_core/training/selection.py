"""One rule for all methods: the best mean AUC over the validation groups, ties by log-loss."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from brio_core.methods.linear.exact import logistic_path

# Inverse strength of the penalty on the slope of a calibration: it matters only where predictions
# separate the classes.
WEAK_PENALTY = 1e4
LEAST_SLOPE = 1e-3
# Pairs of validation subjects that are compared together; larger cohorts have more.
PAIRS_AT_ONCE = 2**25


def improves(auc: Any, loss: Any, best_auc: Any, best_loss: Any) -> Any:
    """Whether validation prefers this to the best so far: by AUC, and by log-loss among equals."""
    return (auc > best_auc) | ((auc == best_auc) & (loss < best_loss))


class ValidationAuc:
    """Exact AUC of many folds at once, on the device.

    Under ``loso`` a group is a validation site and AUCs are averaged over the two; under ``id``
    there is one pooled group. Pairs are counted as integers, so equal AUCs compare equal and
    log-loss decides (:func:`improves`). A group of one class has no AUC and is left out; a fold
    without any usable group scores 0.5 throughout.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[np.ndarray]],
        label: np.ndarray,
        device: torch.device | str,
    ) -> None:
        rows = [np.concatenate([np.asarray(group) for group in fold]) for fold in groups]
        width = max(len(fold) for fold in rows)
        count = max(len(fold) for fold in groups)
        self.rows = np.zeros((len(rows), width), np.int64)
        positive = np.zeros((len(rows), count, width), bool)
        negative = np.zeros((len(rows), count, width), bool)
        for index, fold in enumerate(groups):
            self.rows[index, : len(rows[index])] = rows[index]
            start = 0
            for number, group in enumerate(fold):
                part = slice(start, start + len(group))
                positive[index, number, part] = label[group] == 1
                negative[index, number, part] = label[group] == 0
                start += len(group)
        self.index = torch.as_tensor(self.rows, device=device)
        self._counts = np.array([len(fold) for fold in rows])
        positive, negative = (torch.as_tensor(mask, device=device) for mask in (positive, negative))
        self._positive, self._negative, self._members = positive, negative, positive | negative
        self._totals = positive.sum(-1) * negative.sum(-1)

    def parts(self, at_once: int) -> Iterator[tuple[Tensor | None, Tensor | None, slice]]:
        """Columns of ``index`` that hold all subjects, with little padding, from left to right.

        With the folds that have subjects there and the place of every fold among these, one beyond
        the last for the others; None where all have some. Folds differ in their validation sites:
        the widest has several times the subjects of most.
        """
        quarters = np.quantile(self._counts, (0.25, 0.5, 0.75, 1.0), method="higher")
        for start, stop in pairwise([0, *np.unique(quarters).tolist()]):
            wide = self._counts > start
            folds = places = None
            if not wide.all():
                order = np.where(wide, np.cumsum(wide) - 1, wide.sum())
                folds, places = (
                    torch.as_tensor(numbers, device=self.index.device)
                    for numbers in (np.flatnonzero(wide), order)
                )
            for begin in range(start, stop, at_once):
                yield folds, places, slice(begin, min(begin + at_once, stop))

    @property
    def columns(self) -> list[str]:
        """What history.csv calls the groups; a single group is the mean itself."""
        count = self._totals.shape[1]
        return [f"validation_auc_{number + 1}" for number in range(count)] if count > 1 else []

    def groups(self, logits: Tensor) -> Tensor:
        """AUC of every group (F, G) from validation logits (F, width); NaN for a single class."""
        at_once = max(1, PAIRS_AT_ONCE // max(1, self._negative.numel()))
        halves = torch.zeros_like(self._totals)
        for some, negative in zip(logits.split(at_once, -1), self._negative.split(at_once, -1)):
            above = (logits[:, :, None] > some[:, None, :]).to(torch.int8)
            equal = (logits[:, :, None] == some[:, None, :]).to(torch.int8)
            pairs = self._positive[..., :, None] & negative[..., None, :]
            halves += ((2 * above + equal)[:, None] * pairs).sum((-1, -2))
        auc = halves / (2 * self._totals.clamp(min=1)).to(torch.float64)
        return torch.where(self._totals > 0, auc, torch.nan)

    def log_loss(self, logits: Tensor) -> Tensor:
        """Log-loss of every fold (F,), the mean over its groups; here one class is enough."""
        logits = logits.double()[:, None]
        losses = functional.softplus(logits) - logits * self._positive
        counts = self._members.sum(-1)
        means = losses.where(self._members, 0).sum(-1) / counts.clamp(min=1)
        return means.sum(-1) / (counts > 0).sum(-1)

    @staticmethod
    def mean(groups: Tensor) -> Tensor:
        """AUC of every fold, (F,), from those of its groups."""
        usable = ~groups.isnan()
        mean = groups.nan_to_num().sum(-1) / usable.sum(-1).clamp(min=1)
        return torch.where(usable.any(-1), mean, 0.5)


def group_aucs(logits: Tensor, label: Tensor, groups: Sequence[np.ndarray]) -> list[float]:
    """AUC of each group of subjects; NaN for one of a single class."""
    found = []
    for group in groups:
        logit, positive = logits[torch.as_tensor(group)], label[torch.as_tensor(group)] == 1
        difference = logit[positive][:, None] - logit[~positive]
        # The mean of nothing is NaN.
        found.append(float(((difference > 0) + 0.5 * (difference == 0)).double().mean()))
    return found


def mean_auc(aucs: Sequence[float]) -> float:
    """Mean over the groups that have both classes; 0.5 if there is none."""
    found = [one for one in aucs if not np.isnan(one)]
    return float(np.mean(found)) if found else 0.5


def calibration(predicted: Tensor, label: Tensor) -> tuple[float, float]:
    """Slope and intercept of the logistic regression of labels on predictions.

    The slope never turns predictions round, not even those that are worse than chance.
    """
    weights, intercepts = logistic_path(predicted.double()[:, None], label, [WEAK_PENALTY])
    if weights[0, 0] > LEAST_SLOPE:
        return float(weights[0, 0]), float(intercepts[0])
    return LEAST_SLOPE, float(torch.logit(label.double().mean()))


def decision_threshold(logits: np.ndarray, label: np.ndarray) -> float:
    """The logit above which class 1 is said, with the highest balanced accuracy.

    Candidates are 0 and the middle between any two neighbouring logits. Of equally good ones the
    nearest to 0 is taken, then the lower. With a single class all are equally good.
    """
    values = np.unique(np.asarray(logits, float))
    candidates = np.array([0.0, *((values[1:] + values[:-1]) / 2)])
    positive, negative = (np.sort(logits[np.asarray(label) == side]) for side in (1, 0))
    found = len(positive) - np.searchsorted(positive, candidates, side="right")
    left_alone = np.searchsorted(negative, candidates, side="right")
    # Whole numbers, so that equal ones compare equal.
    score = found * len(negative) + left_alone * len(positive)
    return float(candidates[np.lexsort((candidates, np.abs(candidates), -score))[0]])
