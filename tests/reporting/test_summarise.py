"""summarise.py: its numbers, recomputed from predictions.csv by other means, and its refusals."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from brio_core.cohorts.splits import split_checksum
from brio_core.reporting.results import read_sites, read_summaries
from brio_core.system.files import digest
from tests.programs import run_program
from tests.reporting.standins import METHODS, SITES, cohort, make_table, write_run


def summarise(runs, out, *options):
    return run_program(
        "summarise", "--runs", *runs, "--experiment", "main", "--out", out / "loso.csv",
        "--sites", out / "loso.sites.csv", "--records", out / "loso.runs.json", *options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    runs = [write_run(root, variant, seed) for seed in (0, 1) for variant in reversed(METHODS)]
    result = summarise(runs, root)
    assert result.returncode == 0, result.stderr
    return root


def test_a_variant_of_several_experiments_is_read_once(summary):
    for read, name in ((read_summaries, "loso.csv"), (read_sites, "loso.sites.csv")):
        once, twice = read([summary / name]), read([summary / name] * 2)
        assert len(once) and twice.equals(once)


def test_numbers_equal_an_independent_recomputation(summary):
    metrics = pytest.importorskip("sklearn.metrics")
    rows = pd.read_csv(summary / "loso.csv").set_index("variant")
    sites = pd.read_csv(summary / "loso.sites.csv").set_index(["variant", "fold"])
    for variant in METHODS:
        auc, acc, pooled = {}, {}, []
        for seed in (0, 1):
            table = pd.read_csv(
                summary / f"runs/demo/loso/{variant}/seed-{seed}/predictions.csv"
            ).query("split == 'test'")
            pooled.append(metrics.roc_auc_score(table["label"], table["logit"]))
            for fold, part in table.groupby("fold"):
                auc.setdefault(fold, []).append(metrics.roc_auc_score(part["label"], part["logit"]))
                acc.setdefault(fold, []).append(
                    metrics.accuracy_score(part["label"], 1 / (1 + np.exp(-part["logit"])) > 0.5)
                )
        row = rows.loc[variant]
        for name, values in (("auc", auc), ("acc", acc)):
            means = [np.mean(value) for value in values.values()]
            assert row[f"{name}_mean"] == pytest.approx(np.mean(means))
            assert row[f"{name}_sd"] == pytest.approx(np.std(means, ddof=1))
            seeds = np.mean(list(values.values()), axis=0)
            assert row[f"{name}_sd_seeds"] == pytest.approx(np.std(seeds, ddof=1))
            assert row[f"{name}_sites_low"] < row[f"{name}_mean"] < row[f"{name}_sites_high"]
            for fold, value in values.items():
                assert sites.loc[(variant, fold), name] == pytest.approx(np.mean(value))
        assert row["pooled_auc"] == pytest.approx(np.mean(pooled))
        assert row["pooled_auc_low"] < row["pooled_auc"] < row["pooled_auc_high"]


def test_rows_say_what_they_are(summary):
    rows = pd.read_csv(summary / "loso.csv")
    assert rows["variant"].tolist() == list(METHODS), "in the order of the paper"
    assert (rows["seeds"] == 2).all() and (rows["folds"] == 7).all() and (rows["sites"] == 7).all()
    assert (rows["subjects"] == 98).all() and (rows["left_out"] == 0).all()
    assert rows["parameters"].tolist() == [25000, 25000, 277]
    assert rows["peak_memory_gb"].tolist() == [0.31] * 3
    assert rows["seconds_per_epoch"].tolist() == pytest.approx([0.08, 0.08, 0.002])
    runs = json.loads((summary / "loso.runs.json").read_text())
    assert len(runs) == 6 and {run["epochs"] for run in runs} == {30, None}


def test_same_runs_give_the_same_bytes(summary, tmp_path):
    runs = sorted((summary / "runs/demo/loso").glob("*/seed-*"))
    assert summarise(reversed(runs), tmp_path).returncode == 0
    for name in ("loso.csv", "loso.sites.csv"):
        assert (tmp_path / name).read_bytes() == (summary / name).read_bytes()


def test_a_site_with_one_class_is_left_out_and_counted(tmp_path):
    run = write_run(tmp_path, "gcn")
    table = pd.read_csv(run / "predictions.csv")
    table.loc[table["site"] == "Elm", "label"] = 1
    table.to_csv(run / "predictions.csv", index=False)
    assert summarise([run], tmp_path).returncode == 0
    row = pd.read_csv(tmp_path / "loso.csv").iloc[0]
    assert (row["folds"], row["left_out"], row["sites"]) == (6, 1, 7)
    sites = pd.read_csv(tmp_path / "loso.sites.csv").set_index("fold")
    assert np.isnan(sites.loc["Elm", "auc"]) and sites["auc"].notna().sum() == 6
    assert row["auc_mean"] == pytest.approx(sites["auc"].mean())


def test_subjects_and_sites_keep_their_names(tmp_path):
    run = write_run(tmp_path, "gcn", sites=("NA", "007", "None", "1e3", "x"))
    assert summarise([run], tmp_path).returncode == 0
    sites = pd.read_csv(tmp_path / "loso.sites.csv", dtype=str, keep_default_na=False)
    assert sites["fold"].tolist() == ["007", "1e3", "NA", "None", "x"]


def refused(result, out, *words):
    assert result.returncode == 1
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr
    assert not (out / "loso.csv").exists() and not (out / "loso.sites.csv").exists()


def test_runs_of_other_folds_are_refused(tmp_path):
    good = write_run(tmp_path, "gcn")
    other = write_run(tmp_path, "brio", split_checksum="another")
    refused(summarise([good, other], tmp_path), tmp_path, str(other), "split_checksum")


def test_runs_of_another_protocol_are_refused(tmp_path):
    runs = [write_run(tmp_path, "gcn"), write_run(tmp_path, "brio", protocol="id")]
    refused(summarise(runs, tmp_path), tmp_path, str(runs[1]), "protocol")


def test_missing_subjects_are_noticed(tmp_path):
    runs = [write_run(tmp_path, "gcn"), write_run(tmp_path, "brio")]
    lines = (runs[1] / "predictions.csv").read_text().splitlines()
    (runs[1] / "predictions.csv").write_text("\n".join(lines[:-1]) + "\n")
    refused(summarise(runs, tmp_path), tmp_path, str(runs[1]), "same subjects")


def test_a_repeated_run_is_refused(tmp_path):
    run = write_run(tmp_path, "gcn")
    copy = shutil.copytree(run, tmp_path / "copy")
    refused(summarise([run, copy], tmp_path), tmp_path, str(copy), "repeats")


@pytest.mark.parametrize(
    ("damage", "word"),
    [
        (lambda run: (run / "meta.json").write_text("{"), "not valid JSON"),
        (lambda run: (run / "meta.json").write_text("{}"), "no 'cohort'"),
        (lambda run: (run / "meta.json").unlink(), "does not exist"),
        (lambda run: (run / "predictions.csv").unlink(), "does not exist"),
        (lambda run: (run / "predictions.csv").write_text(""), "not a table"),
        (lambda run: (run / "predictions.csv").write_text("subject,site\na,b\n"), "no column"),
        (lambda run: replace_last(run, "nan"), "not a number"),
        (lambda run: replace_last(run, "inf"), "not finite"),
        (lambda run: replace_last(run, ""), "not finite"),
    ],
)
def test_damaged_runs_are_named(tmp_path, damage, word):
    run = write_run(tmp_path, "gcn")
    damage(run)
    refused(summarise([run], tmp_path), tmp_path, str(run), word)


def test_edited_predictions_are_noticed(tmp_path):
    """The right run is named, and not the one beside it."""
    fine, edited = write_run(tmp_path, "gcn"), write_run(tmp_path, "brio")
    for run in (fine, edited):
        meta = json.loads((run / "meta.json").read_text())
        meta["predictions"] = digest(run / "predictions.csv")
        (run / "meta.json").write_text(json.dumps(meta))
    assert summarise([fine, edited], tmp_path).returncode == 0
    for path in tmp_path.glob("loso*"):
        path.unlink()
    replace_last(edited, "9.5")
    words = (str(edited), "was changed after the run had written it")
    refused(summarise([fine, edited], tmp_path), tmp_path, *words)


@pytest.mark.parametrize("damage", ["deleted", "relabelled", "other split"])
def test_the_run_that_does_not_follow_the_split_is_named(tmp_path, damage):
    """Also where it is the first, and where an older version sealed nothing."""
    changed, fine = write_run(tmp_path, "gcn"), write_run(tmp_path, "brio")
    subject, site, label = cohort()
    folds = [{"name": name, "test": np.flatnonzero(site == name).tolist()} for name in SITES]
    split = {"subjects": [*subject], "site": [*site], "label": label.tolist(), "folds": folds}
    split["checksum"] = split_checksum(split)
    (tmp_path / "split.json").write_text(json.dumps(split))
    for run in (changed, fine):
        meta = json.loads((run / "meta.json").read_text())
        (run / "meta.json").write_text(json.dumps(meta | {"split_checksum": split["checksum"]}))
    options = ("--split", tmp_path / "split.json")
    assert summarise([changed, fine], tmp_path, *options).returncode == 0
    for path in tmp_path.glob("loso*"):
        path.unlink()
    lines = (changed / "predictions.csv").read_text().splitlines()
    if damage == "other split":
        meta = json.loads((changed / "meta.json").read_text())
        (changed / "meta.json").write_text(json.dumps(meta | {"split_checksum": "another"}))
    elif damage == "deleted":
        lines.pop()
    else:
        words = lines[-1].split(",")
        words[4] = str(1 - int(words[4]))
        lines[-1] = ",".join(words)
    (changed / "predictions.csv").write_text("\n".join(lines) + "\n")
    said = "another split_checksum" if damage == "other split" else f"test subject {subject[-1]} as"
    refused(summarise([changed, fine], tmp_path, *options), tmp_path, str(changed), said)


def replace_last(run, text):
    path = run / "predictions.csv"
    path.write_text(path.read_text().rstrip("\n").rpartition(",")[0] + f",{text}\n")


def test_rings_count_like_seeds(tmp_path):
    """Runs of another ring have another split, but the same test sites."""
    first = write_run(tmp_path, "brio")
    words = {"split_checksum": "sha-of-the-second-ring", "ring": 1}
    second = write_run(tmp_path / "second", "brio", seed=1, **words)
    meta = json.loads((second / "meta.json").read_text())
    # The same seed in both rings is no repetition.
    (second / "meta.json").write_text(json.dumps(meta | {"seed": 0}))
    result = summarise([first, second], tmp_path)
    assert result.returncode == 0, result.stderr
    row = pd.read_csv(tmp_path / "loso.csv").iloc[0]
    assert (row["seeds"], row["rings"]) == (2, 2)
    records = json.loads((tmp_path / "loso.runs.json").read_text())
    assert [record["ring"] for record in records] == [0, 1]
    as_seeds = [write_run(tmp_path / "seeds", "brio", seed) for seed in (0, 1)]
    (tmp_path / "other").mkdir()
    assert summarise(as_seeds, tmp_path / "other").returncode == 0
    same = pd.read_csv(tmp_path / "other/loso.csv").iloc[0]
    pd.testing.assert_series_equal(row.drop("rings"), same.drop("rings"))
    table = make_table("results", tmp_path / "main", summaries=[tmp_path / "loso.csv"])
    said = table.with_suffix(".md").read_text()
    assert "2 trainings in 2 rings of validation sites" in said
    other = write_run(tmp_path / "third", "gcn", **words | {"split_checksum": "another"})
    refused(summarise([first, second, other], tmp_path / "none"), tmp_path / "none", str(other))
