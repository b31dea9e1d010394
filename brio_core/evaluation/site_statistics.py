"""Statistics over sites: intervals, paired tests, and the spread that sampling alone would give.

A site is the unit here: its AUC is one number, averaged over seeds. Under ``id`` the ten test folds
take the place of sites.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from brio_core.evaluation.intervals import interval_over_sites, middle_share
from brio_core.evaluation.scores import Estimate, midranks
from brio_core.system.seeds import numpy_generator

# Differences of AUCs are rational numbers; rounding lets equal ones be equal in floating point too.
DECIMALS = 12
SIMULATIONS = 1000
# A corrected p below this tells two methods apart.
SIGNIFICANT = 0.05


def signed_rank(differences: np.ndarray) -> tuple[float, float]:
    """Wilcoxon's signed-rank test: sum of the ranks of positive differences, two-sided p.

    The p is exact, also with ties: all signs of the observed ranks are equally likely. Sites
    without a difference are left out, as Wilcoxon did.
    """
    values = np.round(np.asarray(differences, float), DECIMALS)
    values = values[values != 0]
    if not len(values):
        return 0.0, 1.0
    ranks = midranks(np.abs(values))
    # Twice the ranks are whole numbers; their sums are counted by adding one rank after the other.
    doubled = np.rint(2 * ranks).astype(int)
    share = np.zeros(int(doubled.sum()) + 1)
    share[0] = 1.0
    for rank in doubled:
        share[rank:] = (share[rank:] + share[: len(share) - rank]) / 2
        share[:rank] /= 2
    observed = int(doubled[values > 0].sum())
    below, above = share[: observed + 1].sum(), share[observed:].sum()
    return observed / 2, float(min(1.0, 2 * min(below, above)))


def smallest_p(n_sites: int) -> float:
    """What the signed-rank test gives when one method wins at all ``n_sites``."""
    return min(1.0, 2.0 ** (1 - n_sites))


def holm(p_values: np.ndarray) -> np.ndarray:
    """Holm's correction for several comparisons; NaN stays NaN and does not count."""
    p_values = np.asarray(p_values, float)
    corrected = np.full(len(p_values), np.nan)
    known = np.flatnonzero(~np.isnan(p_values))
    order = known[np.argsort(p_values[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(factors * p_values[order]), 1.0)
    return corrected


# What a paired comparison says; first the mean, the ends of its interval and its standard error.
PAIRED = (
    "difference", "difference_low", "difference_high", "difference_se", "sites_compared",
    "sites_better", "sites_worse", "signed_rank", "p", "p_holm", "verdict",
)  # fmt: skip


def paired(differences: Sequence[np.ndarray | None], margin: float) -> list[dict]:
    """What differences at the same sites say, for several comparisons that are tested together.

    Each has the mean with Student's interval, the number of sites above and below zero, and the
    signed-rank test, whose p is corrected for all comparisons (Holm). The verdict is equivalent if
    the interval lies within ``margin``, else better or worse if the corrected p tells them apart,
    else undecided. None is nothing to compare; sites without a number are left out.
    """
    rows = []
    for values in differences:
        found = dict.fromkeys(PAIRED)
        if values is not None:
            values = np.asarray(values, float)
            values = values[~np.isnan(values)]
            several = len(values) > 1
            error = values.std(ddof=1) / math.sqrt(len(values)) if several else math.nan
            counts = len(values), int((values > 0).sum()), int((values < 0).sum())
            numbers = (*interval_over_sites(values), float(error), *counts, *signed_rank(values))
            found |= dict(zip(PAIRED, numbers))
        rows.append(found)
    corrected = holm(np.array([row["p"] for row in rows], float))
    for row, p in zip(rows, corrected.tolist()):
        if row["p"] is not None:
            row["p_holm"] = p
            row["verdict"] = _verdict(row, margin)
    return rows


def _verdict(row: dict, margin: float) -> str:
    if -margin <= row["difference_low"] and row["difference_high"] <= margin:
        return "equivalent"
    if row["p_holm"] < SIGNIFICANT:
        return "better" if row["difference"] > 0 else "worse"
    return "undecided"


def sampling_spread(
    auc: float,
    positives: np.ndarray,
    negatives: np.ndarray,
    key: tuple,
    share: float = 1.0,
    draws: int = SIMULATIONS,
) -> Estimate:
    """Standard deviation of AUC over sites of these sizes if all sites had the same true AUC.

    Scores are drawn from two normal distributions whose AUC is ``auc``; the value is the mean
    over draws, and its ends hold 95 % of them. A spread inside says nothing about the sites.
    ``share`` is that of the variance which averaging over seeds leaves.
    """
    if math.isnan(auc) or len(positives) < 2:
        return Estimate(math.nan, math.nan, math.nan)
    distance = math.sqrt(2) * NormalDist().inv_cdf(min(max(auc, 1e-3), 1 - 1e-3))
    drawn = np.empty((draws, len(positives)))
    for site, (up, down) in enumerate(zip(map(int, positives), map(int, negatives))):
        scores = numpy_generator("spread", *key, site).standard_normal((draws, up + down))
        scores[:, :up] += distance
        ranks = scores.argsort(1).argsort(1)[:, :up].sum(1) + up
        drawn[:, site] = (ranks - up * (up + 1) / 2) / (up * down)
    spread = math.sqrt(share) * drawn.std(1, ddof=1)
    return Estimate(float(spread.mean()), *middle_share(spread))
