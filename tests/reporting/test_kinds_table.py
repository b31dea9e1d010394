"""The table of kinds of connectivity: differences in the same folds."""

import json

import pandas as pd
import pytest
from scipy.stats import t, wilcoxon

from tests.reporting.standins import make_table, printed_lines, summarised, write_run


def write_kind(root, method, kind, effect, seed=0):
    variant = method if kind == "fisher-z" else f"{method}-{kind}"
    words = (variant, "General GNNs", effect)
    folder = write_run(root, variant, seed, method=words, hyperparameters={"connectivity": kind})
    meta = json.loads((folder / "meta.json").read_text()) | {"method": method}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def test_every_kind_stands_beside_fisher_z(tmp_path):
    folders = [write_kind(tmp_path, "gcn", "fisher-z", 0.5, seed) for seed in (0, 1)]
    folders += [write_kind(tmp_path, "gcn", "logarithm", 1.5, seed) for seed in (0, 1)]
    # There is nothing to compare this one with.
    folders.append(write_kind(tmp_path, "gat", "partial", 1.0))
    summary, sites = summarised(tmp_path, folders)
    files = {"summaries": [summary], "sites": [sites], "runs": folders}
    make_table("kinds", tmp_path / "kinds", **files)
    rows = pd.read_csv(tmp_path / "kinds.csv").set_index(["method", "kind"])
    auc = pd.read_csv(sites).set_index(["variant", "fold"])["auc"]
    difference = auc["gcn-logarithm"] - auc["gcn"]
    found = rows.loc["gcn", "logarithm"]
    assert found["seeds"] == 2
    assert found["difference"] == pytest.approx(difference.mean())
    ends = t.interval(0.95, 6, difference.mean(), difference.sem())
    assert tuple(found[["difference_low", "difference_high"]]) == pytest.approx(ends)
    assert found["reference"] == "gcn" and found["p_holm"] == found["p"], "a single comparison"
    assert found["p"] == pytest.approx(wilcoxon(difference, method="exact").pvalue)
    assert rows.loc[("gat", "partial"), ["difference", "p"]].isna().all()
    plain, logarithm, partial = printed_lines(tmp_path / "kinds.csv")
    assert plain[:2] == ["gcn", "Fisher z"] and plain[3:] == ["–"] * 4
    assert logarithm[1] == "logarithm" and "–" not in logarithm
    auc = f"{100 * rows.loc[('gat', 'partial'), 'auc_mean']:.1f}"
    assert partial[1:] == ["partial correlation", auc, *["–"] * 4]
