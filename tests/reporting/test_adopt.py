"""Predictions that come from elsewhere."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.programs import run_program
from tests.reporting.standins import cohort, make_table, printed_lines, summarised, write_run


@pytest.fixture(scope="module")
def split(tmp_path_factory):
    """A split made by split.py from a stand-in cohort, with its plain form."""
    tmp_path = tmp_path_factory.mktemp("split")
    subject, site, label = cohort()
    table = pd.DataFrame({"subject": subject, "site": site, "label": label})
    for name in ("age", "sex", "mean_fd", "tr", "group", "source"):
        table[name] = "n/a"
    table.to_csv(tmp_path / "participants.tsv", sep="\t", index=False)
    result = run_program(
        "split", "--participants", tmp_path / "participants.tsv", "--cohort", "demo",
        "--protocol", "loso", "--split-seed", 0, "--out", tmp_path / "loso.json",
        "--plain", tmp_path / "loso.csv",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return tmp_path / "loso.json"


def external_predictions(split, folder, change=lambda table: table):
    """What a stranger would write, who has nothing but the plain split."""
    plain = pd.read_csv(split.with_suffix(".csv"))
    test = plain[plain["split"] == "test"]
    logit = np.random.default_rng(0).normal(size=len(test))
    table = change(test.assign(logit=logit)[["subject", "fold", "logit"]].sample(frac=1))
    path = folder / "theirs.csv"
    table.to_csv(path, index=False)
    return path


def adopt(split, predictions, checksum=None):
    checksum = checksum or json.loads(split.read_text())["checksum"]
    return run_program(
        "adopt", "--predictions", predictions, "--split", split, "--checksum", checksum,
        "--variant", "theirs", "--label", "Their method", "--group", "Brain network methods",
        "--out-dir", predictions.parent / "runs/theirs/seed-0",
    )  # fmt: skip


def test_the_plain_split_is_the_split(split):
    content = json.loads(split.read_text())
    plain = pd.read_csv(split.with_suffix(".csv"))
    assert list(plain.columns) == ["subject", "fold", "split"]
    for fold in content["folds"]:
        for part in ("train", "validation", "test"):
            members = plain[(plain["fold"] == fold["name"]) & (plain["split"] == part)]
            assert members["subject"].tolist() == [content["subjects"][i] for i in fold[part]]


def test_external_predictions_appear_in_tables_and_tests(split, tmp_path):
    root = tmp_path
    path = external_predictions(split, root)
    result = adopt(split, path, json.loads(split.read_text())["checksum"][:10])
    assert result.returncode == 0, result.stderr
    checksum = json.loads(split.read_text())["checksum"]
    run = write_run(root / "ours", "brio", split_checksum=checksum)
    summary, sites = summarised(root, [run, root / "runs/theirs/seed-0"])
    files = {"summaries": [summary], "sites": [sites]}
    make_table("results", root / "table", **files)
    make_table("comparison", root / "table", **files)
    rows = pd.read_csv(summary).set_index("variant")
    theirs = pd.read_csv(path).set_index("subject")["logit"]
    metrics = pytest.importorskip("sklearn.metrics")
    subject, site, label = cohort()
    logit = theirs.loc[subject].to_numpy()
    aucs = [metrics.roc_auc_score(label[site == s], logit[site == s]) for s in np.unique(site)]
    assert rows.loc["theirs", "auc_mean"] == pytest.approx(np.mean(aucs))
    tested = pd.read_csv(root / "table.csv").query("score == 'auc'").set_index("variant")
    assert 0 < tested.loc["theirs", "p"] <= 1
    assert "Their method" in (root / "table.md").read_text()
    make_table("efficiency", root / "costs", **files)
    text = (root / "costs.md").read_text()
    assert "BRIO" in text and "Their method" not in text, "what it took is not known"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.iloc[1:], "1 of 98 are missing"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "twice"),
        (lambda t: t.assign(fold="Elm"), "in fold"),
        (lambda t: pd.concat([t, t.iloc[:1].assign(subject="x")]), "which the split does not"),
        (lambda t: t.assign(logit=np.inf), "not finite"),
        (lambda t: t.assign(logit="high"), "not a number"),
        (lambda t: t.assign(logit=1 / (1 + np.exp(-t["logit"]))), "write log-odds instead: log(p"),
        (lambda t: t.drop(columns="fold"), "no column 'fold'; correct it"),
    ],
)
def test_what_does_not_fit_the_split_is_named(split, tmp_path, change, words):
    path = external_predictions(split, tmp_path, change)
    result = adopt(split, path)
    assert result.returncode == 1 and result.stderr.startswith("error: ")
    assert words in result.stderr and str(path) in result.stderr
    assert not (tmp_path / "runs/theirs/seed-0").exists()


def test_predictions_for_another_split_are_refused(split, tmp_path):
    result = adopt(split, external_predictions(split, tmp_path), "0" * 64)
    assert result.returncode == 1 and "was made for the split 000000000000" in result.stderr


def test_rows_of_other_parts_do_not_matter(split, tmp_path):
    path = external_predictions(split, tmp_path)
    table = pd.read_csv(path).assign(split="test")
    more = table.head(5).assign(split="validation", logit=9.0)
    pd.concat([table, more]).to_csv(path, index=False)
    assert adopt(split, path).returncode == 0
    kept = pd.read_csv(tmp_path / "runs/theirs/seed-0/predictions.csv")
    assert len(kept) == 98 and kept["logit"].max() < 9


def test_external_predictions_have_no_threshold(split, tmp_path):
    predictions = external_predictions(split, tmp_path)
    assert adopt(split, predictions).returncode == 0
    theirs = predictions.parent / "runs/theirs/seed-0"
    content = json.loads(split.read_text())
    decision = {"threshold": 0.4, "recalibration": {"slope": 0.5, "intercept": 0.1}}
    folds = [{"name": fold["name"], **decision} for fold in content["folds"]]
    ours = write_run(tmp_path, "gcn", split_checksum=content["checksum"], folds=folds)
    summary, sites = summarised(tmp_path, [ours, theirs])
    rows = pd.read_csv(summary).set_index("variant")["acc_threshold_mean"]
    assert pd.isna(rows["theirs"]) and rows["gcn"] > 0
    test = pd.read_csv(ours / "predictions.csv").query("split == 'test'")
    right = (test["logit"] > 0.4) == test["label"]
    assert rows["gcn"] == pytest.approx(right.groupby(test["fold"]).mean().mean())
    printed = make_table("results", tmp_path / "main", summaries=[summary])
    lines = {line[0]: line[1:] for line in printed_lines(printed)}
    assert lines["Their method"][2] == "–" and lines["GCN"][2] == f"{100 * rows['gcn']:.1f}"
    printed = make_table("site_scores", tmp_path / "sites", sites=[sites])
    lines = {line[0]: line[1:] for line in printed_lines(printed)}
    without = [4, 5, 6, 10, 11, 12]
    assert [lines["Their method"][place - 1] for place in without] == ["–"] * 6
    assert "–" not in lines["GCN"]
