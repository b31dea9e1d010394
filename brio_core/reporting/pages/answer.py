"""What the page says first: the result in plain sentences, methods ranked, sites by methods."""

import math
from types import SimpleNamespace as Namespace

import pandas as pd

from brio_core.evaluation.site_statistics import SIGNIFICANT, holm, signed_rank, smallest_p
from brio_core.reporting import results
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.results import cohort_title
from brio_core.reporting.table import NONE, auc_cell, auc_text, listed, p_text, percent, plural

CHANCE = 0.5
# Shares of colour, at which the text keeps its contrast in light and dark pages.
STRONGEST = 0.55
ABOVE, BELOW = "0, 114, 178", "213, 94, 0"
# Places on a bar, by columns of the summaries.
ENDS = {"mean": "auc_mean", "low": "auc_sites_low", "high": "auc_sites_high"}


def headlines(summaries: pd.DataFrame, sites: pd.DataFrame, datasets: dict) -> list[Namespace]:
    """One answer per cohort with results on unseen sites.

    ``sites`` has the AUC of every variant at every site, for the paired test.
    """
    rows = summaries[summaries["variant"] == summaries["method"]]
    unseen = rows[(rows["protocol"] == "loso") & rows["auc_mean"].notna()]
    return [
        Namespace(
            cohort=cohort,
            title=cohort_title(datasets, cohort),
            lines=_lines(
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
        f"At a new site, the true AUC of {first['label']} may be expected between {low} and {high}."
    )
    again = seen[seen["variant"] == hero["variant"]]
    if len(again):
        lines["And on known sites?"] = (
            f"On sites seen in training {hero['label']} reaches {auc_text(again.iloc[0])}."
        )
    return lines


def _best(ranked: pd.DataFrame, hero: pd.Series) -> str:
    """The highest, then the reference, the best linear model and the best of the others."""
    first = ranked.iloc[0]
    parts = [
        f"{first['label']} reaches an AUC of {auc_text(first)} % as the mean over "
        f"{plural(int(first['sites']), 'site')} ({plural(int(first['subjects']), 'subject')})"
    ]
    if hero["variant"] != first["variant"]:
        parts.append(f"{hero['label']} reaches {auc_text(hero)}")
    rest = ranked[ranked["variant"] != hero["variant"]]
    is_linear = rest["group"] == "Linear"
    for rivals, kind in ((rest[is_linear], "linear models"), (rest[~is_linear], "other methods")):
        if len(rivals) and rivals.iloc[0]["variant"] != first["variant"]:
            best = rivals.iloc[0]
            several = f"the best of {len(rivals)} {kind}, {best['label']},"
            parts.append(
                f"{several if len(rivals) > 1 else best['label']} reaches {auc_text(best)}"
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
            sentences.append(f"The {of} of {listed(labels)} {text} (50).")
    return " ".join(sentences)


def rankings(summaries: pd.DataFrame, datasets: dict) -> list[Namespace]:
    """One per cohort and protocol; variants of methods and drawn labels are left out."""
    rows = summaries[summaries["variant"] == summaries["method"]]
    rows = rows[rows["auc_mean"].notna() & rows["protocol"].isin(list(results.PROTOCOLS))]
    found = []
    for (cohort, protocol), own in rows.groupby(["cohort", "protocol"], sort=False):
        own = own.sort_values("auc_mean", ascending=False, kind="stable")
        ends = pd.DataFrame({name: own[column] for name, column in ENDS.items()})
        low = min(0.4, math.floor(10 * ends.min(axis=None)) / 10)
        high = min(1.0, max(0.6, math.ceil(10 * ends.max(axis=None)) / 10))
        # Where there is no interval, the bar has no length.
        ends = ends.T.fillna(own["auc_mean"]).T
        places = 100 * ((ends - low) / (high - low)).clip(0, 1)
        bars = [
            Namespace(label=row["label"], auc=auc_cell(row), ours=row["variant"] == REFERENCE, **at)
            for (_, row), at in zip(own.iterrows(), places.to_dict("records"))
        ]
        title = results.place_title(datasets, cohort, protocol)
        chance = 100 * (CHANCE - low) / (high - low)
        ends = (f"{100 * low:.0f}", f"{100 * high:.0f}")
        words = {"title": title, "bars": bars, "chance": chance, "ends": ends}
        found.append(Namespace(cohort=cohort, protocol=protocol, **words))
    # Unseen sites first, which is what the page is about.
    return sorted(found, key=lambda one: list(results.PROTOCOLS).index(one.protocol))


def site_maps(summaries: pd.DataFrame, sites: pd.DataFrame, datasets: dict) -> list[Namespace]:
    """One per cohort that was tested on unseen sites."""
    sites = sites[(sites["protocol"] == "loso") & (sites["variant"] == sites["method"])]
    means = summaries[summaries["protocol"] == "loso"]
    found = []
    for cohort, own in sites.groupby("cohort", sort=False):
        order = means[means["cohort"] == cohort].set_index("variant")["auc_mean"]
        order = order.sort_values(ascending=False, kind="stable")
        labels = own.drop_duplicates("variant").set_index("variant")["label"]
        methods = [variant for variant in order.index if variant in labels.index]
        cells = own.set_index(["fold", "variant"])
        worst = own.groupby("fold")["auc"].mean().sort_values(kind="stable")
        rows = []
        for site, mean in worst.items():
            here = cells.loc[site]
            marks = [_mark(here, variant, site, labels[variant]) for variant in methods]
            rows.append((site, f"{int(here['n'].iloc[0])}", percent(mean), marks))
        title = results.place_title(datasets, cohort, "loso")
        names = [labels[one] for one in methods]
        found.append(Namespace(cohort=cohort, title=title, methods=names, rows=rows))
    return found


def _mark(here: pd.DataFrame, variant: str, site: str, label: str) -> Namespace:
    if variant not in here.index or math.isnan(here.loc[variant, "auc"]):
        return Namespace(text=NONE, colour="transparent", words=f"{site}, {label}: no AUC")
    row = here.loc[variant]
    share = STRONGEST * min(1, abs(row["auc"] - CHANCE) / CHANCE)
    colour = f"rgba({ABOVE if row['auc'] >= CHANCE else BELOW}, {share:.2f})"
    words = f"{label}, {results.site_words(row.to_dict() | {'fold': site})}"
    return Namespace(text=f"{100 * row['auc']:.0f}", colour=colour, words=words)
