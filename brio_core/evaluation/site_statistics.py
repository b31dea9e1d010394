"""Statistics over sites: intervals, paired tests, and the spread that sampling alone would give.

A site is the unit here: its AUC is one number, averaged over seeds. Under ``id`` the ten test folds
take the place of sites.

In a ring every site validates two folds and tests one. So folds share validation sites, and a
variant that all folds choose together has seen the labels of every site.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist

import numpy as np
import pandas as pd

from brio_core.evaluation.intervals import (
    auc_interval,
    interval_over_sites,
    middle_share,
    prediction_interval,
    variance_by_size,
)
from brio_core.evaluation.scores import Decision, Estimate, midranks, score_folds, usable
from brio_core.system.seeds import numpy_generator

# Differences of AUCs are rational numbers; rounding lets equal ones be equal in floating point too.
DECIMALS = 12
SIMULATIONS = 1000
RESAMPLED = 10_000
# A corrected p below this tells two methods apart.
SIGNIFICANT = 0.05
# The row of means in a table of sites.
ALL_SITES = "all"


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
    return {1: "better", -1: "worse", 0: "undecided"}[told_apart(row)]


def told_apart(row: dict) -> int:
    """1 if a comparison of :func:`paired` is above zero by its corrected p, -1 if below, else 0.

    The p is of ranks: one site far out may draw the mean to the other side, which tells nothing.
    """
    count = row["sites_better"] + row["sites_worse"]
    sides = np.sign((row["difference"], row["signed_rank"] - count * (count + 1) / 4))
    return int(sides[0]) if row["p_holm"] < SIGNIFICANT and sides[0] == sides[1] else 0


def corrected_ends(row: dict, count: int) -> tuple[float, float]:
    """The ends of a comparison's interval, so wide that all ``count`` hold (95 %, Bonferroni)."""
    from scipy.special import stdtrit

    half = stdtrit(row["sites_compared"] - 1, 1 - 0.025 / count) * row["difference_se"]
    return row["difference"] - half, row["difference"] + half


def ranks_over_sites(scores: np.ndarray, key: tuple) -> list[Estimate]:
    """The rank of every method by its mean over sites, 1 the highest, with a 95 % interval.

    ``scores`` are (sites, methods). The interval is that of ranks when sites are drawn with
    replacement: it says how far other sites like these would reorder the methods.
    """
    drawn = numpy_generator("ranks", *key).integers(len(scores), size=(RESAMPLED, len(scores)))
    weights = np.stack([np.bincount(one, minlength=len(scores)) for one in drawn])
    ends = np.quantile(_ranks(weights @ scores), (0.025, 0.975), axis=0, method="nearest")
    own = _ranks(scores.sum(0)[None])[0]
    return [Estimate(*map(float, one)) for one in zip(own, *ends)]


def _ranks(sums: np.ndarray) -> np.ndarray:
    """Ranks within each row, the highest first; equal ones share the best."""
    sums = np.round(sums, DECIMALS)
    return 1 + (sums[:, None, :] > sums[:, :, None]).sum(-1)


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


def sampling_variances(used: pd.DataFrame, share: float) -> np.ndarray:
    """How far AUCs of sites are from true ones by sampling: by their sizes, at the mean AUC.

    DeLong's variance is small where an AUC happens to be high; such sites would weigh too much, and
    a new site be expected about a point too high. ``share`` is what averaging over seeds leaves.
    """
    typical = np.clip(used["auc"].mean(), 0.01, 0.99)
    positives = used["positives"].to_numpy()
    by_size = variance_by_size(typical, positives, used["n"].to_numpy() - positives)
    return share * by_size


def site_table(
    site: np.ndarray, label: np.ndarray, logits: np.ndarray, decisions: Mapping[str, Decision]
) -> pd.DataFrame:
    """Scores at every site, and in the row ``all`` their means over sites.

    ``auc_low`` and ``auc_high`` are the 95 % interval of a site's AUC (DeLong), and of the mean
    (Student's over sites); ``auc_new_low`` and ``auc_new_high`` where a new site's is expected.
    """
    scores = score_folds(site, label, logits[None], [decisions]).set_index("fold")
    scores.index.name = "site"
    rows = [site == one for one in scores.index]
    ends = [auc_interval(label[own], logits[None, own])[1:] for own in rows]
    scores.insert(3, "auc_low", [low for low, _ in ends])
    scores.insert(4, "auc_high", [high for _, high in ends])
    used = usable(scores)
    mean, low, high = interval_over_sites(used["auc"])
    new = prediction_interval(used["auc"], sampling_variances(used, 1.0))
    total = used.mean().to_dict() | {"n": len(label), "positives": int(label.sum())}
    total |= {"auc": mean, "auc_low": max(0.0, low), "auc_high": min(1.0, high)}
    scores.loc[ALL_SITES] = total
    scores = scores.astype({"n": int, "positives": int})
    for place, (name, end) in enumerate(zip(("auc_new_low", "auc_new_high"), new)):
        scores.insert(5 + place, name, np.nan)
        scores.loc[ALL_SITES, name] = end
    return scores


def mean_and_error(cells: pd.DataFrame) -> tuple[float, float]:
    """Mean of ``value`` over folds, and its standard error; NaN with fewer than two folds.

    A row of ``cells`` is a ``fold`` and a ``part`` that validates it, each pair once. Values of one
    fold share a model, and those of one part share subjects: variances of both kinds are added
    and what they have in common is taken off (Cameron, Gelbach and Miller, 2011). The error is
    never smaller than that over folds alone.
    """
    cells = cells.dropna(subset="value")
    sizes = cells.groupby("fold")["value"].transform("size")
    weights = 1 / (sizes * cells["fold"].nunique())
    mean = float((weights * cells["value"]).sum()) if len(cells) else math.nan
    if cells["fold"].nunique() < 2:
        return mean, math.nan
    shares = weights * (cells["value"] - mean)

    def variance(clusters: np.ndarray | pd.Series) -> float:
        sums = shares.groupby(clusters).sum()
        return float((sums**2).sum() * len(sums) / max(len(sums) - 1, 1))

    folds = variance(cells["fold"])
    both = folds + variance(cells["part"]) - variance(np.arange(len(cells)))
    return mean, math.sqrt(max(both, folds))


def nested_choice(scores: pd.DataFrame, validated: dict[tuple, set[str]]) -> dict[str, str]:
    """For each tested fold the variant that validation prefers without that fold's site.

    ``scores`` has a row per fold and a column per variant; the index is a tuple that starts with
    the fold's name (a ring may follow). ``validated`` names, for the same tuples, the folds whose
    test subjects validate. A fold is asked if the site neither validates nor is tested there. If
    none is left, because all source sites validate, the site's own fold decides. The first of
    equally good variants is taken.
    """
    chosen = {}
    for site in dict.fromkeys(key[0] for key in scores.index):
        asked = [key[0] != site and site not in validated[key] for key in scores.index]
        if not any(asked):
            asked = [key[0] == site for key in scores.index]
        chosen[site] = preferred(scores[asked])
    return chosen


def preferred(scores: pd.DataFrame) -> str:
    """The variant with the highest mean over folds, the first of equally good ones."""
    return str(scores.mean().round(12).idxmax())
