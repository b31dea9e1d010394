"""Seeds together, and methods against published hyperparameters, against sums by hand."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import mannwhitneyu

from tests.reporting.standins import make_table, summarised, write_course, write_run


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
    make_table("ensembles", root / "ensembles", runs=folders)
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


# AUCs of two validation sites in two epochs. Of the lucky one every site likes its own epoch, and
# the other's not at all.
STEADY, BETTER = ([0.6, 0.5], [0.6, 0.5]), ([0.65, 0.5], [0.65, 0.5])
LUCKY = [0.9, 0.5], [0.5, 0.9]
ONE_SITE, ONE_SITE_BETTER = ([0.6, 0.5], [None, None]), ([0.7, 0.5], [None, None])


def write_preset(root, variant, *courses):
    words = (variant.upper(), "General GNNs", 0.7)
    folder = write_course(root, variant, courses, 0, 1, {"epochs": 2}, words)
    meta = json.loads((folder / "meta.json").read_text())
    meta["method"] = variant.removesuffix("-published")
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_cross_selected_validation_prefers_a_preset(tmp_path):
    folders = [
        write_preset(tmp_path, "gcn", STEADY, STEADY),
        write_preset(tmp_path, "gcn-published", LUCKY, LUCKY),
        write_preset(tmp_path, "gat", STEADY, STEADY),
        write_preset(tmp_path, "gat-published", BETTER, STEADY),
        write_preset(tmp_path, "coral", ONE_SITE, ONE_SITE),
        write_preset(tmp_path, "coral-published", ONE_SITE_BETTER, ONE_SITE),
        write_preset(tmp_path, "gin", STEADY, STEADY),
        write_preset(tmp_path, "linear-correlation", STEADY, STEADY),
    ]
    summary, sites = summarised(tmp_path, folders)
    prefix = tmp_path / "presets"
    variants = [
        {"variant": f"{name}{preset}", "method": name}
        for name in ("gcn", "gat", "gin", "coral")
        for preset in ("", "-published")
    ] + [{"variant": "linear-correlation", "method": "linear-correlation"}]
    planned = {"pairs": [["demo", "loso"]], "variants": variants}
    files = {"summaries": [summary], "sites": [sites], "runs": folders}
    make_table("variants", prefix, {"names": ["common", "published"]}, planned, **files)
    rows = pd.read_csv(f"{prefix}.csv", keep_default_na=False).set_index("method")
    assert rows["preferred"].to_dict() == {
        "gcn": "common", "gat": "published", "coral": "published", "gin": "",
        "linear-correlation": "",
    }  # fmt: skip
    assert float(rows.loc["gcn", "validation_published"]) == pytest.approx(0.7), "more luck"
    assert float(rows.loc["gcn", "crossed_published"]) == pytest.approx(0.5)
    assert float(rows.loc["gcn", "crossed_difference"]) == pytest.approx(-0.1)
    assert float(rows.loc["gat", "crossed_difference"]) == pytest.approx(0.025)
    assert float(rows.loc["gat", "crossed_difference_se"]) == pytest.approx(0.025), "over two folds"
    assert rows.loc["coral", "crossed_difference"] == "", "nothing to cross"
    summaries = pd.read_csv(summary).set_index("variant")
    assert float(rows.loc["gcn", "auc_published"]) == summaries.loc["gcn-published", "auc_mean"]
    assert rows.loc["linear-correlation", "validation_published"] == ""
    text = (tmp_path / "presets.md").read_text()
    lines = {
        "GCN": "60.0 | 70.0 | **60.0** | 50.0 | -10.0 ± 0.0 | # | # | # ± # | common",
        "GIN": "60.0 | not run | 60.0 | not run | – | # | not run | – | not run",
        "LINEAR-CORRELATION": "60.0 | – | 60.0 | – | – | # | – | – | –",
    }
    for label, line in lines.items():
        pattern = re.escape(f"| {label} | {line} |").replace(r"\#", r"[-+\d.]+")
        assert re.search(pattern, text), text
