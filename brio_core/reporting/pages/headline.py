"""The result in plain sentences, made from numbers; whoever wins is named."""

import pandas as pd

from brio_core.reporting.results import PLACE, REFERENCE, cohort_title
from brio_core.reporting.table import plural


def headlines(summaries: pd.DataFrame, datasets: dict) -> list[str]:
    """One paragraph per cohort with results on unseen sites."""
    rows = summaries[summaries["variant"] == summaries["method"]].drop_duplicates(PLACE)
    unseen = rows[(rows["protocol"] == "loso") & rows["pooled_auc"].notna()]
    return [
        _paragraph(
            unseen[unseen["cohort"] == cohort],
            rows[(rows["cohort"] == cohort) & (rows["protocol"] == "id")],
            cohort_title(datasets, cohort),
        )
        for cohort in dict.fromkeys(unseen["cohort"])
    ]


def _paragraph(unseen: pd.DataFrame, seen: pd.DataFrame, title: str) -> str:
    ranked = unseen.sort_values("pooled_auc", ascending=False, kind="stable")
    ours = ranked[ranked["variant"] == REFERENCE]
    hero = (ours if len(ours) else ranked).iloc[0]
    rest = ranked[ranked["variant"] != hero["variant"]]
    is_linear = rest["group"] == "Linear"
    parts = [
        f"{title}: on sites it has never seen, {hero['label']} reaches a pooled AUC of "
        f"{_interval(hero)} ({plural(int(hero['subjects']), 'subject')}, "
        f"{plural(int(hero['sites']), 'site')})"
    ]
    for rivals, kind in ((rest[is_linear], "linear models"), (rest[~is_linear], "other methods")):
        if len(rivals):
            best = rivals.iloc[0]
            several = f"the best of {len(rivals)} {kind}, {best['label']},"
            who = several if len(rivals) > 1 else best["label"]
            parts.append(f"{who} reaches {_interval(best)}")
    sentences = ["; ".join(parts) + "."]
    if len(ranked) > 1:
        sentences.append(_winner(ranked, hero))
    sentences += _chance(ranked)
    again = seen[seen["variant"] == hero["variant"]]
    if len(again):
        sentences.append(
            f"On sites seen in training {hero['label']} reaches {_interval(again.iloc[0])}."
        )
    return " ".join(sentences)


def _winner(ranked: pd.DataFrame, hero: pd.Series) -> str:
    top = ranked[ranked["pooled_auc"].round(2) == ranked["pooled_auc"].round(2).max()]
    if len(top) > 1:
        return f"The highest are, equal when rounded, {_names(top['label'].tolist())}."
    first = top.iloc[0]
    rival = ranked.iloc[1] if first["variant"] == hero["variant"] else hero
    apart = first["pooled_auc_low"] > rival["pooled_auc_high"]
    relation = "lies above" if apart else "overlaps"
    return (
        f"The highest is {first['label']}; its 95 % interval {relation} that of {rival['label']}."
    )


def _chance(ranked: pd.DataFrame) -> list[str]:
    low, high = ranked["pooled_auc_low"], ranked["pooled_auc_high"]
    if (low > 0.5).all():
        return ["All intervals lie above chance (0.50)."] if len(ranked) > 1 else []
    unsure, below = (
        ranked["label"][rows].tolist() for rows in ((low <= 0.5) & (high >= 0.5), high < 0.5)
    )
    return [
        f"The {'interval' if len(labels) == 1 else 'intervals'} of {_names(labels)} {what} (0.50)."
        for labels, what in (
            (unsure, f"{'does' if len(unsure) == 1 else 'do'} not exclude chance"),
            (below, f"{'lies' if len(below) == 1 else 'lie'} below chance"),
        )
        if labels
    ]


def _interval(row: pd.Series) -> str:
    low, high = row["pooled_auc_low"], row["pooled_auc_high"]
    return f"{row['pooled_auc']:.2f} [{low:.2f}, {high:.2f}]"


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
