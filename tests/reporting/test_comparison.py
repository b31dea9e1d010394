"""Comparison and scores by site: every number again from predictions.csv, by other means."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.reporting.standins import DATASET, METHODS, make_table, summarised, write_run
from tests.reporting.test_figures import draw

SEEDS = (0, 1)


def run(root, protocol="loso"):
    runs = sorted((root / "runs/demo" / protocol).glob("*/seed-*"))
    summary, sites = summarised(root, runs, protocol)
    words = {"datasets": {"demo": DATASET}, "sites": [sites]}
    make_table("comparison", root / "comparison", summaries=[summary], **words)
    make_table("site_scores", root / "site-scores", **words)
    return root


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for variant in METHODS:
        # The linear model says the same with both seeds.
        for seed in SEEDS:
            folder = write_run(root, variant, 0 if variant.startswith("linear") else seed)
            if variant.startswith("linear") and seed:
                other = folder.parent / f"seed-{seed}"
                other.mkdir()
                for name in ("predictions.csv", "history.csv"):
                    (other / name).write_bytes((folder / name).read_bytes())
                meta = json.loads((folder / "meta.json").read_text()) | {"seed": seed}
                (other / "meta.json").write_text(json.dumps(meta))
    return run(root)


def predictions(root, variant, seed):
    path = root / f"runs/demo/loso/{variant}/seed-{seed}/predictions.csv"
    return pd.read_csv(path).query("split == 'test'")


def site_aucs(root, variant):
    metrics = pytest.importorskip("sklearn.metrics")
    by_seed = [
        predictions(root, variant, seed)
        .groupby("fold")[["label", "logit"]]
        .apply(lambda part: metrics.roc_auc_score(part["label"], part["logit"]))
        for seed in SEEDS
    ]
    return sum(by_seed) / len(by_seed)


def test_differences_and_tests_equal_a_recomputation(results):
    stats = pytest.importorskip("scipy.stats")
    rows = pd.read_csv(results / "comparison.csv").query("score == 'auc'").set_index("variant")
    brio = site_aucs(results, "brio")
    p_values = {}
    for variant in ("gcn", "linear-correlation"):
        difference = (site_aucs(results, variant) - brio).round(10)
        row = rows.loc[variant]
        assert row["mean"] == pytest.approx(site_aucs(results, variant).mean())
        assert row["difference"] == pytest.approx(difference.mean())
        assert row["difference_low"] < row["difference"] < row["difference_high"]
        assert row["sites_better"] == (difference > 0).sum()
        assert row["sites_worse"] == (difference < 0).sum()
        nonzero = difference[difference != 0]
        # All signs of the observed ranks, as scipy's permutation test counts them.
        ranks = stats.rankdata(nonzero.abs())
        exact = stats.permutation_test(
            (ranks * np.sign(nonzero),), np.sum, permutation_type="samples", n_resamples=np.inf
        )
        assert row["p"] == pytest.approx(exact.pvalue)
        assert row["signed_rank"] == ranks[nonzero > 0].sum()
        p_values[variant] = exact.pvalue
    smaller, larger = sorted(p_values, key=p_values.get)
    assert rows.loc[smaller, "p_holm"] == pytest.approx(min(1, 2 * p_values[smaller]))
    assert rows.loc[larger, "p_holm"] == pytest.approx(
        max(p_values[larger], min(1, 2 * p_values[smaller]))
    )
    assert np.isnan(rows.loc["brio", "p"]) and np.isnan(rows.loc["brio", "difference"])


def test_any_variant_can_be_the_reference(results, tmp_path):
    words = {"datasets": {"demo": DATASET}, "entry": {"reference": "gcn"}}
    files = {"summaries": [results / "loso.csv"], "sites": [results / "loso-sites.csv"]}
    path = make_table("comparison", tmp_path / "comparison", **words, **files)
    rows = pd.read_csv(path).query("score == 'auc'").set_index("variant")
    difference = site_aucs(results, "brio") - site_aucs(results, "gcn")
    assert rows.loc["brio", "difference"] == pytest.approx(difference.mean())
    assert rows.loc["brio", "reference"] == "gcn" and np.isnan(rows.loc["gcn", "p"])
    words = path.with_suffix(".md").read_text()
    assert "Difference to GCN" in words and "to BRIO" not in words


def test_pooled_auc_stands_beside_the_mean(results):
    metrics = pytest.importorskip("sklearn.metrics")
    rows = pd.read_csv(results / "comparison.csv").query("score == 'auc'").set_index("variant")
    table = json.loads((results / "comparison.json").read_text())
    for variant, (label, *_) in METHODS.items():
        parts = [predictions(results, variant, seed) for seed in SEEDS]
        pooled = np.mean([metrics.roc_auc_score(p["label"], p["logit"]) for p in parts])
        assert rows.loc[variant, "pooled"] == pytest.approx(pooled)
        cells = next(r["cells"] for r in table["rows"] if r["cells"][0]["text"] == label)
        assert cells[1]["text"] == f"{100 * site_aucs(results, variant).mean():.1f}"
        assert cells[4]["text"] == f"{100 * pooled:.1f}"
        assert cells[10]["text"] == f"{100 * site_aucs(results, variant).std(ddof=1):.1f}"


def test_ranks_are_by_mean_auc_and_have_intervals(results):
    rows = pd.read_csv(results / "comparison.csv").query("score == 'auc'")
    assert rows.set_index("rank")["mean"].sort_index().is_monotonic_decreasing
    assert sorted(rows["rank"]) == [1, 2, 3] and (rows["seeds"] <= len(SEEDS)).all()
    assert (rows["rank_low"] <= rows["rank"]).all() and (rows["rank"] <= rows["rank_high"]).all()
    assert rows["rank_low"].ge(1).all() and rows["rank_high"].le(3).all()


def test_intervals_are_students_over_sites(results):
    stats = pytest.importorskip("scipy.stats")
    rows = pd.read_csv(results / "comparison.csv").query("score == 'auc'").set_index("variant")
    values = site_aucs(results, "gcn"), site_aucs(results, "brio")
    for sample, variant, name in ((values[1], "brio", "mean"),
                                  (values[0] - values[1], "gcn", "difference")):  # fmt: skip
        low, high = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
        assert rows.loc[variant, f"{name}_low"] == pytest.approx(low)
        assert rows.loc[variant, f"{name}_high"] == pytest.approx(min(high, 1.0))
    gcn = rows.loc["gcn"]
    assert gcn["verdict"] in ("better", "worse", "equivalent", "undecided")
    assert (gcn["verdict"] == "worse") == (gcn["difference"] < 0 and gcn["p_holm"] < 0.05)
    assert gcn["new_low"] < gcn["mean_low"] and gcn["new_high"] > gcn["mean_high"]


def test_equal_seeds_count_once(results):
    seeds = pd.read_csv(results / "loso.csv").set_index("variant")["seeds"]
    assert seeds.to_dict() == {"gcn": 2, "brio": 2, "linear-correlation": 1}


def test_the_long_table_has_every_site_and_score(results):
    metrics = pytest.importorskip("sklearn.metrics")
    table = pd.read_csv(results / "site-scores.csv").set_index(["variant", "fold"])
    assert len(table) == 3 * 7
    for seed_scores in [("gcn", "Elm"), ("linear-correlation", "Fir")]:
        found = {"sensitivity": [], "specificity": [], "brier": [], "calibration_in_the_large": []}
        for seed in SEEDS:
            part = predictions(results, seed_scores[0], seed).query(f"fold == '{seed_scores[1]}'")
            chance = 1 / (1 + np.exp(-part["logit"]))
            found["sensitivity"].append(metrics.recall_score(part["label"], chance > 0.5))
            found["specificity"].append(
                metrics.recall_score(part["label"], chance > 0.5, pos_label=0)
            )
            found["brier"].append(metrics.brier_score_loss(part["label"], chance))
            found["calibration_in_the_large"].append(chance.mean() - part["label"].mean())
        row = table.loc[seed_scores]
        for name, values in found.items():
            assert row[name] == pytest.approx(np.mean(values)), name
        both = np.mean(found["sensitivity"]) + np.mean(found["specificity"])
        assert row["balanced_accuracy"] == pytest.approx(both / 2)


def test_the_reader_is_told_what_sites_can_show(results):
    text = (results / "comparison.md").read_text()
    assert "with 7 sites the smallest possible p is 0.016" in text
    assert "no evidence that sites differ" in text and "Wilcoxon signed-rank test" in text
    assert "is overconfident" in (results / "site-scores.md").read_text()


def test_what_was_not_run_says_so(results):
    gat = {"variant": "gat", "method": "gat", "label": "GAT", "group": "General GNNs"}
    planned = {"pairs": [["demo", "loso"], ["far", "loso"]], "variants": [gat]}
    files = {"summaries": [results / "loso.csv"], "sites": [results / "loso-sites.csv"]}
    for name in ("comparison", "site_scores"):
        make_table(name, results / "p", planned=planned, **files)
        text = (results / "p.md").read_text()
        assert "| *far, unseen sites: not run* |" in text
        assert text.index("| GCN |") < text.index("| GAT | not run |") < text.index("| BRIO |")


def test_too_few_sites_are_said_to_decide_nothing(tmp_path):
    sites = ("A", "B", "C", "D", "E")
    for variant in METHODS:
        write_run(tmp_path, variant, sites=sites)
    run(tmp_path)
    text = (tmp_path / "comparison.md").read_text()
    assert "nothing can be told from BRIO here" in text


def test_without_brio_nothing_is_tested(tmp_path):
    write_run(tmp_path, "gcn", protocol="id")
    run(tmp_path, "id")
    text = (tmp_path / "comparison.md").read_text()
    assert "nothing is tested" in text and "their p is too small" in text


def test_folds_of_one_class_have_no_auc_and_do_not_hurt(tmp_path):
    """Every fold tests one class only, for all methods or for some folds."""
    for poor in (slice(None), slice(3)):
        runs = [write_run(tmp_path, variant, protocol="id") for variant in METHODS]
        for run in runs:
            table = pd.read_csv(run / "predictions.csv")
            names = sorted(set(table["fold"]))[poor]
            table.loc[table["fold"].isin(names), "label"] = 0
            table.to_csv(run / "predictions.csv", index=False)
        summaries, sites = summarised(tmp_path, runs, "id")
        pdf, _ = draw("auc_by_site", tmp_path / "figure", summaries=[summaries], sites=[sites])
        assert pdf.stat().st_size > 10_000
