"""The result in plain sentences, made from numbers; whoever wins is named."""

from typing import NamedTuple

import pandas as pd

from brio_core.evaluation.site_statistics import SIGNIFICANT, holm, signed_rank, smallest_p
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.results import PLACE, cohort_title
from brio_core.reporting.table import p_text, percent, plural, with_interval

CHANCE = 0.5


class Answer(NamedTuple):
    """What the results on unseen sites of a cohort say, by question."""

    cohort: str
    title: str
    lines: dict[str, str]


def headlines(summaries: pd.DataFrame, sites: pd.DataFrame, datasets: dict) -> list[Answer]:
    """One answer per cohort with results on unseen sites.

    ``sites`` has the AUC of every variant at every site, for the paired test.
    """
    # Several experiments may have a variant.
    rows = summaries[summaries["variant"] == summaries["method"]].drop_duplicates(PLACE)
    sites = sites.drop_duplicates([*PLACE, "fold"])
    unseen = rows[(rows["protocol"] == "loso") & rows["auc_mean"].notna()]
    return [
        Answer(
            cohort,
            cohort_title(datasets, cohort),
            _lines(
                unseen[unseen["cohort"] == cohort],
                rows[(rows["cohort"] == cohort) & (rows["protocol"] == "id")],
                sites[(sites["cohort"] == cohort) & (sites["protocol"] == "loso")],
            ),
        )
        for cohort in dict.fromkeys(unseen["cohort"])
    ]


def _lines(unseen: pd.DataFrame, seen: pd.DataFrame, sites: pd.DataFrame) -> dict[str, str]:
    ranked = unseen.sort_values("auc_mean", ascending=False, kind="stable")
    ours = ranked[ranked["variant"] == REFERENCE]
    first, hero = ranked.iloc[0], (ours if len(ours) else ranked).iloc[0]
    lines = {
        "Does it work on unseen sites?": _chance(ranked),
        "Which is best?": _best(ranked, hero),
    }
    if len(ranked) > 1:
        rival = ranked.iloc[1] if first["variant"] == hero["variant"] else hero
        lines["How sure is that?"] = _tested(first, rival, sites, ranked["variant"].tolist())
    low, high = percent(first["auc_new_low"]), percent(first["auc_new_high"])
    lines["What may a new site expect?"] = (
        f"At a new site, {first['label']} may be expected between {low} and {high}."
    )
    again = seen[seen["variant"] == hero["variant"]]
    if len(again):
        lines["And on known sites?"] = (
            f"On sites seen in training {hero['label']} reaches {_interval(again.iloc[0])}."
        )
    return lines


def _best(ranked: pd.DataFrame, hero: pd.Series) -> str:
    """The highest, then the reference, the best linear model and the best of the others."""
    first = ranked.iloc[0]
    parts = [
        f"{first['label']} reaches an AUC of {_interval(first)} % as the mean over "
        f"{plural(int(first['sites']), 'site')} ({plural(int(first['subjects']), 'subject')})"
    ]
    if hero["variant"] != first["variant"]:
        parts.append(f"{hero['label']} reaches {_interval(hero)}")
    rest = ranked[ranked["variant"] != hero["variant"]]
    is_linear = rest["group"] == "Linear"
    for rivals, kind in ((rest[is_linear], "linear models"), (rest[~is_linear], "other methods")):
        if len(rivals) and rivals.iloc[0]["variant"] != first["variant"]:
            best = rivals.iloc[0]
            several = f"the best of {len(rivals)} {kind}, {best['label']},"
            parts.append(
                f"{several if len(rivals) > 1 else best['label']} reaches {_interval(best)}"
            )
    return "; ".join(parts) + "."


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


def _chance(ranked: pd.DataFrame) -> str:
    """How many intervals lie above chance, and which do not."""
    low, high = ranked["auc_sites_low"], ranked["auc_sites_high"]
    above, every = int((low > CHANCE).sum()), len(ranked)
    unsure = ranked["label"][(low <= CHANCE) & (high >= CHANCE)].tolist()
    below = ranked["label"][high < CHANCE].tolist()
    what = f"the 95 % {'interval lies' if every == 1 else 'intervals lie'} above chance (50)"
    if above == every:
        return f"Yes: {what.replace('the', 'all', 1) if every > 1 else what}."
    sentences = [f"For {above} of {plural(every, 'method')} {what}." if above else "Not shown."]
    for labels, text in (
        (unsure, f"{'does' if len(unsure) == 1 else 'do'} not exclude chance"),
        (below, f"{'lies' if len(below) == 1 else 'lie'} below chance"),
    ):
        if labels:
            of = "interval" if len(labels) == 1 else "intervals"
            sentences.append(f"The {of} of {_names(labels)} {text} (50).")
    return " ".join(sentences)


def _interval(row: pd.Series) -> str:
    cell = with_interval(*(row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high")))
    return f"{cell.text} {cell.extra}"


def _names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
