"""The answers of the page: whoever wins is named, and no claim goes beyond its test."""

import numpy as np
import pandas as pd

from brio_core.reporting.pages.answer import headlines, rankings, site_maps
from brio_core.reporting.results import SUMMARY_NUMBERS
from brio_core.reporting.tables.results import permuted_rows, verdict
from tests.reporting.standins import METHODS


def summary(**aucs):
    """Summary rows with given AUCs and intervals of ± 0.05."""
    rows = []
    for variant, value in aucs.items():
        variant = variant.replace("_", "-")
        label, group, _ = METHODS[variant]
        row = dict.fromkeys(SUMMARY_NUMBERS, 1.0)
        row |= {"cohort": "demo", "protocol": "loso", "variant": variant, "method": variant,
                "label": label, "group": group, "subjects": 98, "sites": 7, "auc_mean": value,
                "auc_sites_low": value - 0.05, "auc_sites_high": value + 0.05,
                "auc_new_low": value - 0.2, "auc_new_high": value + 0.2}  # fmt: skip
        rows.append(row)
    return pd.DataFrame(rows)


def at_sites(rows, wobble=0.0, count=7):
    """AUC of every variant at every site; with a wobble, who is better differs between sites."""
    signs = np.resize([1, -1], count)
    return pd.concat(
        pd.DataFrame({"cohort": "demo", "protocol": "loso", "variant": row["variant"],
                      "fold": range(count), "auc": row["auc_mean"] + sign * wobble * signs})
        for sign, (_, row) in zip((1, -1, 1), rows.iterrows())
    )  # fmt: skip


def told(rows, sites):
    (answer,) = headlines(rows, sites, {"demo": {"title": "Demo"}})
    return f"{answer.title}: {' '.join(answer.lines.values())}"


def test_headline_names_whoever_wins():
    rows = summary(gcn=0.52, brio=0.75, linear_correlation=0.9)
    # Another experiment has a variant at one site only.
    other = at_sites(rows)[:1].assign(variant="gcn-published")
    text = told(rows, pd.concat([at_sites(rows), other]))
    assert (
        "Linear (correlation) reaches an AUC of 90.0 [85.0, 95.0] % as the mean over 7 sites "
        "(98 subjects); BRIO reaches 75.0 [70.0, 80.0]; GCN reaches 52.0 [47.0, 57.0]." in text
    )
    assert "For 2 of 3 methods the 95 % intervals lie above chance (50)." in text
    assert (
        "The highest is Linear (correlation); a paired test over sites finds a difference to BRIO "
        "(corrected p = 0.031)." in text
    )
    assert (
        "At a new site, the true AUC of Linear (correlation) may be expected between 70.0 and"
        in text
    )
    assert "The interval of GCN does not exclude chance (50)." in text
    rows = summary(gcn=0.6, brio=0.75, linear_correlation=0.72)
    text = told(rows, at_sites(rows, wobble=0.2))
    assert "The highest is BRIO; a paired test over sites does not find a difference to" in text
    assert "Yes: all 95 % intervals lie above chance (50)." in text
    text = told(rows, at_sites(rows, count=5))
    assert "The highest is BRIO; 5 sites are too few to tell one of 3 methods from another." in text
    rows = summary(gcn=0.6)
    text = told(rows, at_sites(rows))
    assert text.startswith("Demo: Yes: the 95 % interval lies above chance (50). GCN reaches")
    assert "highest" not in text
    rows = summary(gcn=0.52)
    assert told(rows, at_sites(rows)).startswith("Demo: Not shown. The interval of GCN does not")
    assert headlines(rows.assign(protocol="id"), at_sites(rows), {}) == []


def test_verdict_on_permuted_labels_names_what_misses_chance():
    rows = summary(gcn=0.5, brio=0.5).assign(protocol="loso-permuted-1")
    rows = rows.assign(auc_mean=[0.5, 0.7], auc_sites_low=[0.4, 0.6], auc_sites_high=[0.6, 0.8])
    assert "1 of 2 intervals misses chance (0.50): BRIO [0.60, 0.80]" in verdict(
        permuted_rows(rows)
    )
    fine = permuted_rows(rows[rows["variant"] == "gcn"])
    assert "the interval contains chance" in verdict(fine)


def test_methods_are_ranked_and_stay_within_the_plot():
    rows = summary(gcn=0.3, brio=0.75, linear_correlation=0.98)
    (found,) = rankings(rows, {})
    assert [bar.label for bar in found.bars] == ["Linear (correlation)", "BRIO", "GCN"]
    assert found.ends == ("20", "100") and [bar.ours for bar in found.bars] == [
        False,
        True,
        False,
    ]
    places = [place for bar in found.bars for place in (bar.low, bar.mean, bar.high)]
    assert min(places) >= 0 and max(places) <= 100 and 0 < found.chance < 100


def test_worst_site_stands_on_top_and_best_method_on_the_left():
    rows = summary(gcn=0.6, brio=0.75)
    sites = at_sites(rows).assign(n=20, positives=8)
    sites["auc"] -= 0.01 * sites["fold"]
    sites.loc[(sites["fold"] == 3) & (sites["variant"] == "gcn"), "auc"] = np.nan
    sites = sites.assign(method=sites["variant"], fold="site-" + sites["fold"].astype(str))
    sites["label"] = sites["variant"].map({name: one[0] for name, one in METHODS.items()})
    (found,) = site_maps(rows, sites, {})
    assert found.methods == ["BRIO", "GCN"]
    assert [row[0] for row in found.rows] == [f"site-{i}" for i in (6, 5, 4, 2, 1, 0, 3)]
    site, n, mean, marks = found.rows[0]
    assert (site, n, mean, marks[0].text) == ("site-6", "20", "61.5", "69")
    assert marks[0].words.startswith("BRIO, site-6: 20 subjects, AUC 69.0 [")
    assert found.rows[-1][3][1].text == "–", "no AUC"
