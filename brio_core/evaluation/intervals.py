"""95 % intervals: DeLong for pooled AUCs, a bootstrap within (fold, class) for means over folds."""

import math
from statistics import NormalDist

import numpy as np

from brio_core.evaluation.scores import Estimate, placements
from brio_core.system.seeds import numpy_generator

LEVEL = 0.95
DRAWS = 2000
_Z = NormalDist().inv_cdf((1 + LEVEL) / 2)


def delong(label: np.ndarray, logits: np.ndarray) -> tuple[float, float]:
    """AUC averaged over seeds (rows of ``logits``) and its variance (DeLong et al., 1988).

    The average of several AUCs of the same subjects has the averaged placement values, so its
    variance holds the correlation between seeds.
    """
    parts = [placements(label, one) for one in np.atleast_2d(logits)]
    below, above = (np.mean([part[side] for part in parts], axis=0) for side in (0, 1))
    variance = sum(
        side.var(ddof=1) / len(side) if len(side) > 1 else math.inf for side in (below, above)
    )
    return float(below.mean()), float(variance)


def averaging_share(label: np.ndarray, logits: np.ndarray, strata: np.ndarray) -> float:
    """Variance of AUCs that are averaged over seeds, as a share of what single seeds have.

    It is one where all seeds say the same, and one over their number where they have nothing in
    common but the classes. DeLong's variances of the strata (sites) are added up.
    """
    averaged = single = 0.0
    for stratum in np.unique(strata):
        rows = strata == stratum
        if min(np.sum(label[rows] == side) for side in (0, 1)) > 1:
            averaged += delong(label[rows], logits[:, rows])[1]
            single += np.mean([delong(label[rows], one[rows])[1] for one in logits])
    return float(averaged / single) if single else 1.0


def auc_interval(label: np.ndarray, logits: np.ndarray) -> Estimate:
    """AUC of all subjects together with an interval that is symmetric in logit(AUC)."""
    label = np.asarray(label)
    positives = int((label == 1).sum())
    negatives = len(label) - positives
    if not positives or not negatives:
        return Estimate(math.nan, math.nan, math.nan)
    value, variance = delong(label, logits)
    if not 0 < value < 1 or not 0 < variance < math.inf:
        return Estimate(value, *hanley_mcneil(value, positives, negatives))
    centre = math.log(value / (1 - value))
    half = _Z * math.sqrt(variance) / (value * (1 - value))
    low, high = (1 / (1 + math.exp(-end)) for end in (centre - half, centre + half))
    return Estimate(value, low, high)


def hanley_mcneil(value: float, n_positive: int, n_negative: int) -> tuple[float, float]:
    """Interval of all AUCs that the data do not contradict (Newcombe 2006, method 5).

    It depends on the AUC and the sample size alone, and has a width at 0 and 1, where the
    placement values do not vary.
    """

    def contradicted(theta: float) -> bool:
        size = (n_positive + n_negative) / 2 - 1
        spread = 1 + size * ((1 - theta) / (2 - theta) + theta / (1 + theta))
        variance = theta * (1 - theta) * spread / (n_positive * n_negative)
        return abs(theta - value) > _Z * math.sqrt(variance)

    return _edge(contradicted, 0.0, value), _edge(contradicted, 1.0, value)


def _edge(contradicted, outside: float, inside: float) -> float:
    """The point between where ``contradicted`` changes, by bisection."""
    if not contradicted(outside):
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if contradicted(middle) else (outside, middle)
    return inside


def resampling_weights(
    fold: np.ndarray, label: np.ndarray, key: tuple, draws: int = DRAWS
) -> np.ndarray:
    """Bootstrap weights (draws, subjects); they sum to one within each fold and class.

    From n subjects n - 1 are drawn: then the variance of a mean is unbiased also for the few
    subjects of a small site (Rao and Wu, 1988). The weights depend on ``key`` and on the fold,
    so all methods are resampled alike.
    """
    fold, label = np.asarray(fold), np.asarray(label)
    weights = np.zeros((draws, len(label)))
    for name in np.unique(fold):
        for value in (0, 1):
            members = np.flatnonzero((fold == name) & (label == value))
            if len(members):
                size = max(len(members) - 1, 1)
                generator = numpy_generator("interval", *key, name, value)
                shares = np.full(len(members), 1 / len(members))
                weights[:, members] = generator.multinomial(size, shares, draws) / size
    return weights


def mean_intervals(
    fold: np.ndarray, label: np.ndarray, logits: np.ndarray, weights: np.ndarray
) -> tuple[Estimate, Estimate]:
    """Mean over folds of AUC and of accuracy, with percentile intervals over subjects.

    Folds are fixed and their subjects are resampled, so the interval speaks about these sites.
    Folds with one class are left out.
    """
    fold, label, logits = np.asarray(fold), np.asarray(label), np.atleast_2d(logits)
    used = np.zeros(len(label), bool)
    exact, drawn = [], []
    for name in np.unique(fold):
        positive, negative = (np.flatnonzero((fold == name) & (label == c)) for c in (1, 0))
        if not len(positive) or not len(negative):
            continue
        used[positive] = used[negative] = True
        difference = logits[:, positive, None] - logits[:, None, negative]
        wins = (0.5 * (np.sign(difference) + 1)).mean(0)
        share = len(positive) / (len(positive) + len(negative))
        hits = share * (logits[:, positive] > 0).mean(0)
        rejections = (1 - share) * (logits[:, negative] <= 0).mean(0)
        up, down = weights[:, positive], weights[:, negative]
        exact.append((wins.mean(), hits.mean() + rejections.mean()))
        drawn.append((((up @ wins) * down).sum(1), up @ hits + down @ rejections))
    if not exact:
        return (Estimate(math.nan, math.nan, math.nan),) * 2
    positives = int((label[used] == 1).sum())
    auc, acc = np.mean(exact, axis=0)
    auc_draws, acc_draws = np.mean(drawn, axis=0)
    return (
        _percentiles(auc, auc_draws, hanley_mcneil, positives, int(used.sum()) - positives),
        _percentiles(acc, acc_draws, wilson, int(used.sum())),
    )


def _percentiles(value: float, draws: np.ndarray, fallback, *sizes: int) -> Estimate:
    """Percentile interval; where nothing varies, what the sample size alone allows."""
    if np.ptp(draws) < 1e-12:
        return Estimate(float(value), *fallback(float(value), *sizes))
    return Estimate(float(value), *middle_share(draws))


def middle_share(draws: np.ndarray) -> tuple[float, float]:
    """The ends between which 95 % of the draws lie."""
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def wilson(value: float, n: int) -> tuple[float, float]:
    """Wilson's interval of a share of ``n``."""
    centre = (value + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z * math.sqrt(value * (1 - value) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
    return max(centre - half, 0.0), min(centre + half, 1.0)


def mean_of_repeats(values: np.ndarray) -> Estimate:
    """Mean of independent repeats (permutations) with Student's interval."""
    from scipy.special import stdtrit

    values = np.asarray(values, float)
    half = stdtrit(len(values) - 1, (1 + LEVEL) / 2) * values.std(ddof=1) / math.sqrt(len(values))
    mean = float(values.mean())
    return Estimate(mean, mean - float(half), mean + float(half))
