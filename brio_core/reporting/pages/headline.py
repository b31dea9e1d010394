"""The result in plain sentences, made from numbers; whoever wins is named."""

import pandas as pd

from brio_core.evaluation.site_statistics import SIGNIFICANT, holm, signed_rank, smallest_p
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.results import PLACE, cohort_title
from brio_core.reporting.table import p_text, percent, plural, with_interval

CHANCE = 0.5


def headlines(summaries: pd.DataFrame, sites: pd.DataFrame, datasets: dict) -> list[str]:
    """One paragraph per cohort with results on unseen sites.

    ``sites`` has the AUC of every variant at every site, for the paired test.
    """
    # Several experiments may have a variant.
    rows = summaries[summaries["variant"] == summaries["method"]].drop_duplicates(PLACE)
    sites = sites.drop_duplicates([*PLACE, "fold"])
    unseen = rows[(rows["protocol"] == "loso") & rows["auc_mean"].notna()]
    return [
        _paragraph(
            unseen[unseen["cohort"] == cohort],
            rows[(rows["cohort"] == cohort) & (rows["protocol"] == "id")],
            sites[(sites["cohort"] == cohort) & (sites["protocol"] == "loso")],
            cohort_title(datasets, cohort),
        )
        for cohort in dict.fromkeys(unseen["cohort"])
    ]


def _paragraph(unseen: pd.DataFrame, seen: pd.DataFrame, sites: pd.DataFrame, title: str) -> str:
    ranked = unseen.sort_values("auc_mean", ascending=False, kind="stable")
    ours = ranked[ranked["variant"] == REFERENCE]
    hero = (ours if len(ours) else ranked).iloc[0]
    rest = ranked[ranked["variant"] != hero["variant"]]
    is_linear = rest["group"] == "Linear"
    parts = [
        f"{title}: on sites it has never seen, {hero['label']} reaches an AUC of "
        f"{_interval(hero)} % as the mean over {plural(int(hero['sites']), 'site')} "
        f"({plural(int(hero['subjects']), 'subject')})"
    ]
    for rivals, kind in ((rest[is_linear], "linear models"), (rest[~is_linear], "other methods")):
        if len(rivals):
            best = rivals.iloc[0]
            several = f"the best of {len(rivals)} {kind}, {best['label']},"
            who = several if len(rivals) > 1 else best["label"]
            parts.append(f"{who} reaches {_interval(best)}")
    sentences = ["; ".join(parts) + "."]
    if len(ranked) > 1:
        first = ranked.iloc[0]
        rival = ranked.iloc[1] if first["variant"] == hero["variant"] else hero
        sentences.append(_tested(first, rival, sites, ranked["variant"].tolist()))
    top = ranked.iloc[0]
    low, high = percent(top["auc_new_low"]), percent(top["auc_new_high"])
    sentences.append(f"At a new site, {top['label']} may be expected between {low} and {high}.")
    sentences += _chance(ranked)
    again = seen[seen["variant"] == hero["variant"]]
    if len(again):
        sentences.append(
            f"On sites seen in training {hero['label']} reaches {_interval(again.iloc[0])}."
        )
    return " ".join(sentences)


def _tested(first: pd.Series, rival: pd.Series, sites: pd.DataFrame, variants: list[str]) -> str:
    """Whether the highest can be told from a rival, by a paired test over sites.

    It is the highest of several, so p is corrected for all that are compared with the rival.
    """
    auc = sites.pivot(index="fold", columns="variant", values="auc")[variants].dropna()
    others = [variant for variant in variants if variant != rival["variant"]]
    start = f"The highest is {first['label']}"
    if smallest_p(len(auc)) * len(others) >= SIGNIFICANT:
        count = plural(len(auc), "site")
        return (
            f"{start}; {count} are too few to tell one of {len(others) + 1} methods from another."
        )
    tests = [signed_rank((auc[one] - auc[rival["variant"]]).to_numpy())[1] for one in others]
    p = holm(tests)[others.index(first["variant"])]
    found = "finds" if p < SIGNIFICANT else "does not find"
    return (
        f"{start}; a paired test over sites {found} a difference to {rival['label']} "
        f"(corrected p {p_text(p) if p < 0.001 else '= ' + p_text(p)})."
    )


def _chance(ranked: pd.DataFrame) -> list[str]:
    low, high = ranked["auc_sites_low"], ranked["auc_sites_high"]
    if (low > CHANCE).all():
        return ["All intervals lie above chance (50)."] if len(ranked) > 1 else []
    unsure, below = (
        ranked["label"][rows].tolist()
        for rows in ((low <= CHANCE) & (high >= CHANCE), high < CHANCE)
    )
    return [
        f"The {'interval' if len(labels) == 1 else 'intervals'} of {_names(labels)} {what} (50)."
        for labels, what in (
            (unsure, f"{'does' if len(unsure) == 1 else 'do'} not exclude chance"),
            (below, f"{'lies' if len(below) == 1 else 'lie'} below chance"),
        )
        if labels
    ]


def _interval(row: pd.Series) -> str:
    cell = with_interval(*(row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high")))
    return f"{cell.text} {cell.extra}"


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
