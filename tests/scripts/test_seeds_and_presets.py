"""ensemble_table and preset_table against sums by hand."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import mannwhitneyu

from tests.scripts.standins import run_program, write_run

WORDS = ("--experiment", json.dumps({"title": "T", "caption": "C"}))


def ok(*command):
    result = run_program(*command)
    assert result.returncode == 0, result.stderr


def held_out(folder):
    table = pd.read_csv(folder / "predictions.csv")
    return table[table["split"] == "test"]


def site_mean_auc(tables, score):
    """The mean over sites of the AUC of a score, by counting pairs."""
    values = []
    for fold in sorted(set(tables["fold"])):
        here = tables["fold"] == fold
        high, low = (score[here & (tables["label"] == label)] for label in (1, 0))
        values.append(mannwhitneyu(high, low).statistic / len(high) / len(low))
    return float(np.mean(values))


@pytest.fixture(scope="module")
def ensembles(tmp_path_factory):
    root = tmp_path_factory.mktemp("ensembles")
    folders = [write_run(root, "brio", seed) for seed in (0, 1, 2)]
    folders += [write_run(root, "gcn", 0), write_run(root, "brio", 0, cohort_name="other")]
    ok("ensemble_table", "--runs", *folders, *WORDS, "--out-prefix", root / "ensembles")
    return root, folders[:3]


def test_all_seeds_together_are_the_mean_of_their_probabilities(ensembles):
    root, folders = ensembles
    rows = pd.read_csv(root / "ensembles.csv").set_index(["cohort", "variant"])
    tables = [held_out(folder) for folder in folders]
    single = [site_mean_auc(table, table["logit"]) for table in tables]
    together = np.mean([1 / (1 + np.exp(-table["logit"])) for table in tables], axis=0)
    brio = rows.loc["demo", "brio"]
    assert brio["seeds"] == 3
    assert brio["auc_single"] == pytest.approx(np.mean(single))
    assert brio["auc_single_sd"] == pytest.approx(np.std(single, ddof=1))
    expected = site_mean_auc(tables[0], pd.Series(together, tables[0].index))
    assert brio["auc_together"] == pytest.approx(expected)
    right = (together > 0.5) == tables[0]["label"]
    assert brio["acc_together"] == pytest.approx(right.groupby(tables[0]["fold"]).mean().mean())


def test_one_seed_has_no_ensemble(ensembles):
    rows = pd.read_csv(ensembles[0] / "ensembles.csv").set_index(["cohort", "variant"])
    assert rows.loc[("demo", "gcn"), ["auc_single_sd", "auc_together"]].isna().all()
    assert rows.loc[("other", "brio"), "seeds"] == 1
    assert "–" in (ensembles[0] / "ensembles.md").read_text()


def test_validation_prefers_a_preset(tmp_path):
    good, bad = ("GCN (published)", "General GNNs", 2.5), ("GAT (published)", "General GNNs", 0.0)
    folders = [
        write_run(tmp_path, "gcn", method=("GCN", "General GNNs", 0.7)),
        write_run(tmp_path, "gcn-published", method=good),
        write_run(tmp_path, "gat", method=("GAT", "General GNNs", 0.7)),
        write_run(tmp_path, "gat-published", method=bad),
        write_run(tmp_path, "gin", method=("GIN", "General GNNs", 0.7)),
        write_run(tmp_path, "linear-correlation"),
    ]
    for folder in folders:
        meta = json.loads((folder / "meta.json").read_text())
        meta["method"] = meta["variant"].removesuffix("-published")
        level = {"gcn": 0.6, "gcn-published": 0.7, "gat": 0.6, "gat-published": 0.5}
        for number, fold in enumerate(meta["folds"]):
            fold["validation_auc"] = level.get(meta["variant"], 0.8) + 0.01 * number
        (folder / "meta.json").write_text(json.dumps(meta))
    summary = tmp_path / "loso.csv"
    ok("summarise", "--runs", *folders, "--experiment", "presets", "--out", summary)
    prefix = tmp_path / "presets"
    variants = [
        {"variant": f"{name}{preset}", "method": name}
        for name in ("gcn", "gat", "gin")
        for preset in ("", "-published")
    ] + [{"variant": "linear-correlation", "method": "linear-correlation"}]
    planned = json.dumps({"settings": [["demo", "loso"]], "variants": variants})
    ok("preset_table", "--summaries", summary, "--runs", *folders, *WORDS, "--planned", planned,
       "--out-prefix", prefix)  # fmt: skip
    rows = pd.read_csv(f"{prefix}.csv", keep_default_na=False).set_index("method")
    assert rows["preferred"].to_dict() == {
        "gcn": "published", "gat": "common", "gin": "", "linear-correlation": ""
    }  # fmt: skip
    summaries = pd.read_csv(summary).set_index("variant")
    assert float(rows.loc["gcn", "validation_published"]) == pytest.approx(0.73)
    assert float(rows.loc["gcn", "auc_published"]) == summaries.loc["gcn-published", "auc_mean"]
    assert rows.loc["linear-correlation", "validation_published"] == ""
    text = (tmp_path / "presets.md").read_text()
    assert re.search(r"\| GIN \| [\d.]+ \| not run \| [\d.]+ \| not run \| – \|", text), text
    assert re.search(r"\| Linear \(correlation\) \| [\d.]+ \| – \| [\d.]+ \| – \| – \|", text), text
