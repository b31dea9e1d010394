"""What validation says about variants: how sure it is, and which it chooses for a new site.

In a ring every site validates two folds and tests one. So folds share validation sites, and a
variant that all folds choose together has seen the labels of every site.
"""

import math

import numpy as np
import pandas as pd


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
