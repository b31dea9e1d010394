"""What may be shared: aggregates only, and no count of few people, nor what would give it away.

Whoever has the file knows the sum of the sites that were left out: the total less the others. So
sites are left out until that sum tells little of each. With ``known`` people in every group at
least, as a rule of inclusion may say, and the sum S of k groups, a group may have between
``known`` and S - (k - 1) ``known`` people. These bounds are ``least`` people or more apart.
"""

from collections.abc import Collection

import pandas as pd

HIDDEN = ""
CLASSES = ["negatives", "positives"]
COHORT_COLUMNS = ("cohort", "site", "subjects", *CLASSES, "frames_mean", "excluded")
# What a row is about; the other columns are numbers that rest on people.
_ABOUT = ("experiment", "cohort", "protocol", "variant", "method", "label", "group", "seeds")
# More digits would tell of how many people a share is made.
_DIGITS = 3


def hidden_groups(
    people: pd.DataFrame, least: int, known: int = 0, others: pd.Series | bool = False
) -> pd.Series:
    """Which rows of one total must be hidden, if ``others`` are hidden for other reasons.

    Each column counts the people of a class.
    """
    hidden = (people < least).any(axis=1) | others
    for row in people.min(axis=1).sort_values(kind="stable").index:
        if not hidden.any() or is_vague(people[hidden], least, known):
            break
        hidden[row] = True
    return hidden


def is_vague(people: pd.DataFrame, least: int, known: int = 0) -> bool:
    """Whether the sums of these rows leave each of them bounds that are far enough apart."""
    return len(people) > 1 and bool(((people - known).sum() >= least).all())


def shared_cohorts(rows: pd.DataFrame, least: int, known: int = 0) -> pd.DataFrame:
    """Counts per site without small cells; ``rows`` as the table of cohorts has them.

    Sites of which nobody is used are left out: whoever knows that would find the others. A site
    is hidden in all cohorts, because several may have the same people. Excluded people are few
    at most sites, so their number is shared for whole cohorts only.
    """
    names, before, shared = set(), None, []
    while names != before:
        before, parts = names, []
        for _, part in rows.groupby("cohort", sort=False):
            # The last row is that of the cohort, whatever a site is called.
            sites = part.iloc[:-1].query("subjects > 0")
            others = sites["site"].isin(names)
            hidden = hidden_groups(sites[CLASSES], least, known, others)
            names = names | set(sites["site"][hidden])
            parts.append((sites, part.iloc[[-1]], hidden))
    for sites, everyone, hidden in parts:
        part = pd.concat([sites, everyone])[list(COHORT_COLUMNS)].round({"frames_mean": 1})
        part, total = part.astype(object), everyone.index[0]
        part.loc[hidden[hidden].index, COHORT_COLUMNS[2:]] = HIDDEN
        part.loc[sites.index, "excluded"] = HIDDEN
        if everyone.iloc[0]["excluded"] < least:
            part.loc[total, "excluded"] = HIDDEN
        if hidden.any():
            # Frames that are usual at a site would tell how many of its people are in the mean.
            part.loc[total, "frames_mean"] = HIDDEN
        if hidden.all() and not is_vague(sites[CLASSES], least, known):
            part.loc[total, COHORT_COLUMNS[2:]] = HIDDEN
        shared.append(part)
    return pd.concat(shared, ignore_index=True)


def hidden_sites(shared: pd.DataFrame) -> dict[str, set[str]]:
    """By cohort, the sites that :func:`shared_cohorts` hides; of a hidden cohort ``None`` too."""
    found: dict[str, set] = {}
    for cohort, rows in shared.groupby("cohort"):
        sites = rows.iloc[:-1]
        found[cohort] = set(sites["site"][sites["subjects"] == HIDDEN])
        if rows.iloc[-1]["subjects"] == HIDDEN:
            found[cohort].add(None)
    return found


def shared_summaries(rows: pd.DataFrame, hidden: dict[str, Collection]) -> pd.DataFrame:
    """Scores of whole cohorts, without those of cohorts of few people.

    They do not say of how many people they are made: runs that leave some out would count these.
    """
    shared = rows.drop(columns="subjects").round(_DIGITS).astype(object)
    numbers = [column for column in shared if column not in _ABOUT]
    shared.loc[_of_hidden_cohorts(rows, hidden), numbers] = HIDDEN
    return shared


def shared_scores(rows: pd.DataFrame, hidden: dict[str, Collection], least: int) -> pd.DataFrame:
    """Scores per test fold without those of hidden sites, and of folds with few of a class."""
    people = rows[["positives"]].assign(negatives=rows["n"] - rows["positives"])
    pairs = zip(rows["cohort"], rows["fold"])
    hide = pd.Series([fold in hidden.get(cohort, ()) for cohort, fold in pairs], rows.index)
    for _, part in people.groupby([rows["cohort"], rows["variant"]], sort=False):
        hide[part.index] |= hidden_groups(part, least)
    hide |= _of_hidden_cohorts(rows, hidden)
    columns = ["cohort", "protocol", "variant", "fold", "auc", "acc"]
    shared = rows[columns].round(_DIGITS).astype(object)
    shared.loc[hide, ["auc", "acc"]] = HIDDEN
    return shared


def _of_hidden_cohorts(rows: pd.DataFrame, hidden: dict[str, Collection]) -> pd.Series:
    return rows["cohort"].map(lambda cohort: None in hidden.get(cohort, ())).astype(bool)
