"""Two views that the overview page has beside its figures: methods ranked, and sites by methods."""

import math
from typing import NamedTuple

import pandas as pd

from brio_core.reporting import results
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.table import NONE, percent, with_interval

CHANCE = 0.5
# Shares of colour, at which the text keeps its contrast in light and dark pages.
STRONGEST = 0.55
ABOVE, BELOW = "0, 114, 178", "213, 94, 0"


class Bar(NamedTuple):
    """A method of the ranked list; places are shares of the width."""

    label: str
    number: str
    interval: str
    mean: float
    low: float
    high: float
    reference: bool


class Ranking(NamedTuple):
    """The methods of a cohort and protocol, the best first."""

    cohort: str
    protocol: str
    title: str
    bars: list[Bar]
    chance: float
    ends: tuple[str, str]


class Mark(NamedTuple):
    """A site and a method: the AUC as it is printed, its colour, and what a pointer is told."""

    text: str
    colour: str
    words: str


class SiteMap(NamedTuple):
    """AUCs of a cohort: sites from worst to best as rows, methods from best to worst as columns."""

    cohort: str
    protocol: str
    title: str
    methods: list[str]
    rows: list[tuple[str, str, str, list[Mark]]]


def rankings(summaries: pd.DataFrame, datasets: dict) -> list[Ranking]:
    """One per cohort and protocol; variants of methods and drawn labels are left out."""
    rows = summaries[summaries["variant"] == summaries["method"]].drop_duplicates(results.PLACE)
    rows = rows[rows["auc_mean"].notna() & rows["protocol"].isin(list(results.PROTOCOLS))]
    found = []
    for (cohort, protocol), own in rows.groupby(["cohort", "protocol"], sort=False):
        own = own.sort_values("auc_mean", ascending=False, kind="stable")
        ends = pd.concat([own["auc_mean"], own["auc_sites_low"], own["auc_sites_high"]]).dropna()
        low = min(0.4, math.floor(10 * ends.min()) / 10)
        high = min(1.0, max(0.6, math.ceil(10 * ends.max()) / 10))
        bars = []
        for _, row in own.iterrows():
            numbers = [row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high")]
            cell = with_interval(*numbers)
            places = [(numbers[0] if math.isnan(one) else one) - low for one in numbers]
            places = [100 * min(max(one / (high - low), 0), 1) for one in places]
            is_ours = row["variant"] == REFERENCE
            bars.append(Bar(row["label"], cell.text, cell.extra, *places, is_ours))
        title = results.place_title(datasets, cohort, protocol)
        chance = 100 * (CHANCE - low) / (high - low)
        ends = (f"{100 * low:.0f}", f"{100 * high:.0f}")
        found.append(Ranking(cohort, protocol, title, bars, chance, ends))
    # Unseen sites first, which is what the page is about.
    return sorted(found, key=lambda one: list(results.PROTOCOLS).index(one.protocol))


def site_maps(summaries: pd.DataFrame, sites: pd.DataFrame, datasets: dict) -> list[SiteMap]:
    """One per cohort that was tested on unseen sites."""
    sites = sites[(sites["protocol"] == "loso") & (sites["variant"] == sites["method"])]
    sites = sites.drop_duplicates([*results.PLACE, "fold"])
    means = summaries[summaries["protocol"] == "loso"].drop_duplicates(results.PLACE)
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
        found.append(SiteMap(cohort, "loso", title, [labels[one] for one in methods], rows))
    return found


def _mark(here: pd.DataFrame, variant: str, site: str, label: str) -> Mark:
    if variant not in here.index or math.isnan(here.loc[variant, "auc"]):
        return Mark(NONE, "transparent", f"{site}, {label}: no AUC")
    row = here.loc[variant]
    share = STRONGEST * min(1, abs(row["auc"] - CHANCE) / CHANCE)
    colour = f"rgba({ABOVE if row['auc'] >= CHANCE else BELOW}, {share:.2f})"
    words = f"{label}, {results.site_words(row.to_dict() | {'fold': site})}"
    return Mark(f"{100 * row['auc']:.0f}", colour, words)
