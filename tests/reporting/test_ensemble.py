"""Ensembles: the mean of standardised scores, by source sites only."""

import numpy as np
import pandas as pd
import pytest

from brio_core.reporting.results import read_run
from brio_core.reporting.summary import ensemble_logits, summarise
from brio_core.system.errors import BrioError
from tests.reporting.standins import make_table, write_run
from tests.workflow.test_configuration import configuration
from workflow.planning.files import ConfigurationError
from workflow.planning.loading import load
from workflow.planning.runs import ensembles

TWO = {"both": {"label": "Both", "members": ["brio", "linear-correlation"]}}


@pytest.fixture
def folders(tmp_path):
    folders = [write_run(tmp_path, "brio", seed) for seed in (0, 1, 2)]
    return [*folders, write_run(tmp_path, "linear-correlation"), write_run(tmp_path, "gcn")]


def change(folder, edit):
    """Edit predictions.csv of a run, whose seal is left out by stand-ins."""
    path = folder / "predictions.csv"
    table = pd.read_csv(path)
    edit(table)
    table.to_csv(path, index=False)


def logits(folders):
    members = [[read_run(one) for one in folders[:3]], [read_run(folders[3])]]
    return pd.Series(ensemble_logits(members, members[0][0].test["subject"]))


def test_it_is_the_mean_of_standardised_scores(folders):
    found = logits(folders)
    tables = [pd.read_csv(folder / "predictions.csv") for folder in folders[:4]]
    test = tables[0][tables[0]["split"] == "test"].reset_index(drop=True)
    for row in (0, 20, 97):
        subject, fold = test.loc[row, ["subject", "fold"]]
        scores, levels, spreads = [], [], []
        for table in tables:
            of_fold = table[table["fold"] == fold]
            source = of_fold.loc[of_fold["split"] == "validation", "logit"].to_numpy()
            own = of_fold[(of_fold["split"] == "test") & (of_fold["subject"] == subject)]
            scores.append((own["logit"].item() - source.mean()) / source.std())
            levels.append(source.mean())
            spreads.append(source.std())
        weights = [1 / 6, 1 / 6, 1 / 6, 1 / 2]
        expected = np.dot(weights, scores) * np.dot(weights, spreads) + np.dot(weights, levels)
        assert found[row] == pytest.approx(expected)


def test_other_test_subjects_and_labels_change_nothing(folders):
    before = logits(folders)
    first = read_run(folders[0]).test["subject"].iloc[0]

    def others(table):
        here = (table["split"] == "test") & (table["subject"] != first)
        table.loc[here, "logit"] *= -3
        table.loc[table["split"] == "test", "label"] = 1 - table["label"]

    for folder in folders:
        change(folder, others)
    after = logits(folders)
    assert after[0] == before[0] and (after[1:] != before[1:]).all()


def test_units_of_a_member_do_not_matter(folders):
    rank = logits(folders).rank()

    def scale(table):
        table["logit"] *= 100

    change(folders[3], scale)
    fold = read_run(folders[0]).test["fold"]
    after = logits(folders)
    for name in fold.unique():
        pd.testing.assert_series_equal(after[fold == name].rank(), rank[fold == name].rank())


def test_it_is_a_row_of_tables_and_tests(folders, tmp_path):
    rows, sites = summarise(folders, "main", {**TWO, "gone": {"label": "", "members": ["gat"]}})
    assert set(rows["variant"]) == {"brio", "linear-correlation", "gcn", "both"}
    files = {"summaries": tmp_path / "loso.csv", "sites": tmp_path / "sites.csv"}
    for path, table in zip(files.values(), (rows, sites)):
        table.to_csv(path, index=False)
    files = {key: [path] for key, path in files.items()}
    entry = {"reference": "brio"}
    tested = pd.read_csv(make_table("comparison", tmp_path / "tests", entry=entry, **files))
    assert 0 < tested.query("score == 'auc'").set_index("variant").loc["both", "p"] <= 1
    make_table("results", tmp_path / "table", **files)
    assert "Ensembles" in (tmp_path / "table.md").read_text()
    make_table("efficiency", tmp_path / "costs", **files)
    assert "Both" not in (tmp_path / "costs.md").read_text(), "nothing was trained for it"


def test_a_member_without_validation_is_named(folders):
    def strip(table):
        table.loc[table["split"] == "validation", "split"] = "train"

    change(folders[1], strip)
    with pytest.raises(BrioError, match=r"seed-1/predictions\.csv has no validation rows of fold"):
        logits(folders)


def test_experiments_name_ensembles():
    names = {"methods": ["linear-logarithm", "brainnettf"], "experiments": ["harmonisation"]}
    resolved = configuration(variants="all", **names)
    found = ensembles(resolved, "harmonisation")["linear-logarithm-and-brainnettf"]
    assert found["members"] == ["linear-logarithm", "brainnettf-logarithm"]
    assert ensembles(resolved, "main") == {}


@pytest.mark.parametrize(
    ("name", "members", "words"),
    [
        ("both", ["brio", "brioo"], "unknown variant 'brioo'"),
        ("gcn", ["brio"], "the ensemble 'gcn' is called like a variant"),
    ],
)
def test_mistakes_are_named(name, members, words, tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/mine.yaml").write_text(
        "title: Mine\nruns: [{variants: [brio, gcn]}]\n"
        f"ensembles: {{{name}: {{label: Both, members: [{', '.join(members)}]}}}}\n"
    )
    file = tmp_path / "config.yaml"
    file.write_text("cohorts: [demo]\nmethods: [brio, gcn]\nexperiments: [mine]\n")
    with pytest.raises(ConfigurationError, match=words):
        load({"cohorts": ["demo"], "methods": ["brio", "gcn"], "experiments": ["mine"]}, [file])
