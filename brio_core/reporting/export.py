"""What may be shared: aggregates only, and no number that rests on few people."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

HIDDEN = ""
COHORT_COLUMNS = ("cohort", "site", "subjects", "negatives", "positives", "frames_mean", "excluded")


def hide_small(rows: pd.DataFrame, counts: Sequence[str], least: int) -> pd.Series:
    """Which rows of one total must be hidden: those that count fewer than ``least`` people.

    A single hidden row could be found from the total and the others, so the smallest of the
    others is hidden with it.
    """
    smallest = rows[list(counts)].min(axis=1)
    hidden = smallest < least
    if hidden.sum() == 1 and len(rows) > 1:
        hidden[smallest[~hidden].idxmin()] = True
    return hidden


def shared_cohorts(rows: pd.DataFrame, least: int) -> pd.DataFrame:
    """Counts per site without small cells; ``rows`` as the table of cohorts has them.

    Excluded people are few at most sites, so their number is shared for whole cohorts only.
    """
    parts = []
    for _, rows_of_cohort in rows.groupby("cohort", sort=False):
        part = rows_of_cohort[list(COHORT_COLUMNS)].reset_index(drop=True).astype(object)
        is_total = part["site"] == "all"
        sites = rows_of_cohort.reset_index(drop=True)[~is_total.to_numpy()]
        hidden = hide_small(sites, ("negatives", "positives"), least)
        part.loc[hidden[hidden].index, COHORT_COLUMNS[2:]] = HIDDEN
        small = is_total & (part["excluded"].replace(HIDDEN, 0).astype(float) < least)
        part.loc[~is_total | small, "excluded"] = HIDDEN
        parts.append(part)
    return pd.concat(parts, ignore_index=True)


def shared_scores(rows: pd.DataFrame, least: int) -> pd.DataFrame:
    """Scores per test fold without those of folds that test few people of a class."""
    people = rows[["n", "positives"]].assign(negatives=rows["n"] - rows["positives"])
    hidden = pd.Series(np.zeros(len(rows), bool), rows.index)
    for _, part in people.groupby(rows["variant"], sort=False):
        hidden[part.index] = hide_small(part, ("positives", "negatives"), least)
    shared = rows[["cohort", "protocol", "variant", "fold", "n", "auc", "acc"]].astype(object)
    shared.loc[hidden, ["n", "auc", "acc"]] = HIDDEN
    return shared
