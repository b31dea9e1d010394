"""95 % intervals: Student's for means over sites, DeLong for pooled AUCs, one for a new site."""

import math
from statistics import NormalDist

import numpy as np

from brio_core.evaluation.scores import Estimate, placements

LEVEL = 0.95
DRAWS = 2000
_TAILS = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
_Z = NormalDist().inv_cdf(_TAILS[1])
# Of true AUCs of sites. Sites of which one is at chance and the next perfect are this far apart.
LARGEST_DEVIATION = 0.25
# Where AUCs are said to be exact, sites must not weigh without limit.
SMALLEST_VARIANCE = 1e-4


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
            single += float(np.mean([delong(label[rows], one[rows])[1] for one in logits]))
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
        variance = variance_by_size(theta, n_positive, n_negative)
        return abs(theta - value) > _Z * math.sqrt(variance)

    return _edge(contradicted, 0.0, value), _edge(contradicted, 1.0, value)


def variance_by_size(theta, n_positive, n_negative):
    """The variance of an AUC whose true value is ``theta``. All are numbers or arrays."""
    size = (n_positive + n_negative) / 2 - 1
    spread = 1 + size * ((1 - theta) / (2 - theta) + theta / (1 + theta))
    return theta * (1 - theta) * spread / (n_positive * n_negative)


def _edge(contradicted, outside: float, inside: float) -> float:
    """The point between where ``contradicted`` changes, by bisection."""
    if not contradicted(outside):
        return outside
    for _ in range(60):
        middle = (outside + inside) / 2
        outside, inside = (middle, inside) if contradicted(middle) else (outside, middle)
    return inside


def interval_over_sites(values: np.ndarray) -> Estimate:
    """Mean over sites with Student's interval; NaN ends where there are fewer than two sites.

    A site's AUC is averaged over seeds and varies with the site, its subjects and the seeds, and so
    does the interval. ``benchmarks/intervals.py`` measures how often it holds the truth.
    """
    values = np.asarray(values, float)
    mean = float(values.mean()) if len(values) else math.nan
    if len(values) < 2:
        return Estimate(mean, math.nan, math.nan)
    # Here and below: most figures import this file, and need no scipy.
    from scipy.special import stdtrit

    student = float(stdtrit(len(values) - 1, _TAILS[1]))
    half = student * float(values.std(ddof=1)) / math.sqrt(len(values))
    return Estimate(mean, mean - half, mean + half)


def deviation_over_sites(deviation: float, n: int) -> Estimate:
    """The interval of a standard deviation of ``n`` normal values, by chi-squared."""
    from scipy.special import chdtri

    if n < 2 or not deviation > 0:
        return Estimate(deviation, math.nan, math.nan)
    low, high = (deviation * math.sqrt((n - 1) / chdtri(n - 1, tail)) for tail in _TAILS)
    return Estimate(deviation, low, high)


def prediction_interval(
    values: np.ndarray, variances: np.ndarray, sizes: tuple[int, int] | None = None
) -> tuple[float, float]:
    """Where the true AUC of a site lies that is not among these (95 %).

    With ``sizes``, the subjects of both classes there, it is where their AUC lies, which differs
    from the true one by sampling.

    A random-effects model: true AUCs differ between sites with an unknown deviation, and AUCs
    differ from true ones by sampling, with known ``variances``. All deviations up to
    ``LARGEST_DEVIATION`` are equally likely before the AUCs are seen. A single estimate of the
    deviation would be zero for many cohorts, and such intervals far too short.
    """
    from scipy.special import ndtr

    values, variances = np.asarray(values, float), np.asarray(variances, float)
    # A site whose variance is unknown says nothing about a new one.
    values, variances = values[np.isfinite(variances)], variances[np.isfinite(variances)]
    if len(values) < 3:
        return math.nan, math.nan
    between = np.linspace(0, LARGEST_DEVIATION, 401)[:, None] ** 2
    weight = 1 / (np.maximum(variances, SMALLEST_VARIANCE) + between)
    total = weight.sum(1)
    mean = (weight @ values) / total
    misfit = (weight * (values - mean[:, None]) ** 2).sum(1)
    likelihood = 0.5 * (np.log(weight).sum(1) - np.log(total) - misfit)
    share = np.exp(likelihood - likelihood.max())
    sampling = variance_by_size(np.clip(mean, 0.01, 0.99), *sizes) if sizes else 0.0
    deviation = np.sqrt(between[:, 0] + 1 / total + sampling)
    places = np.linspace(0, 1, 2001)
    below = (share @ ndtr((places - mean[:, None]) / deviation[:, None])) / share.sum()
    low, high = (float(np.interp(one, below, places)) for one in _TAILS)
    return low, high


def middle_share(draws: np.ndarray) -> tuple[float, float]:
    """The ends between which 95 % of the draws lie."""
    low, high = np.quantile(draws, _TAILS)
    return float(low), float(high)
