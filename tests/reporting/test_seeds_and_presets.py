"""Seeds together, presets and searches: variants against a reference."""

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
    # Of two folds one prefers the published GAT, and the other's site is the one that takes it.
    auc = pd.read_csv(sites).set_index(["variant", "fold"])["auc"]
    first, second = auc["gat"].index
    nested = (auc["gat", first] + auc["gat-published", second]) / 2
    assert float(rows.loc["gat", "auc_nested"]) == pytest.approx(nested)
    assert rows.loc["gin", "auc_nested"] == ""
    text = (tmp_path / "presets.md").read_text()
    lines = {
        "GCN": "60.0 | 70.0 | **60.0** | 50.0 | -10.0 ± 0.0 | # | # | # [#, #] | undecided | # | #"
        " | common",
        "GIN": "60.0 | not run | 60.0 | not run | – | # | not run | – | – | – | – | not run",
        "LINEAR-CORRELATION": "60.0 | – | 60.0 | – | – | # | – | – | – | – | – | –",
    }
    for label, line in lines.items():
        pattern = re.escape(f"| {label} | {line} |").replace(r"\#", r"[-+\d.]+")
        assert re.search(pattern, text), text


SITES = ("Alder", "Birch", "Cedar", "Elm")
# What every fold chose of three values, and the validation AUCs of all folds with each.
FIRST, SECOND = (0.001, 0.003, 0.001, 0.003), (0.003, 0.003, 0.003, 0.0003)
VALUES, MEANS = (0.0003, 0.001, 0.003), (0.6, 0.65, 0.64)


def write(root, variant, validation, seed=0, hyperparameters=None, chosen=None, tries=(), **words):
    """A run whose folds have these validation AUCs, and have chosen these values."""
    name, group = variant.upper(), words.pop("group", "General GNNs")
    method = variant.removesuffix("-searched")
    folder = write_run(
        root, variant, seed, sites=SITES, method=(name, group, 0.7),
        hyperparameters={"epochs": 30, **(hyperparameters or {})}, **words,
    )  # fmt: skip
    meta = json.loads((folder / "meta.json").read_text())
    for fold, auc, choice in zip(meta["folds"], validation, chosen or [{}] * len(SITES)):
        fold |= {"validation_auc": auc, "chosen": choice}
    meta |= {"method": method, "tries": [{"chosen": c, "validation_auc": a} for c, a in tries]}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


def rates(values):
    return [{"learning_rate": value} for value in values]


def pair(root, method, seeds=(0,), shipped=0.001):
    values = {"learning_rate": shipped}
    tries = list(zip(rates(VALUES), MEANS))
    folders = []
    for seed in seeds:
        folders.append(write(root, method, [0.6, 0.62, 0.64, 0.66 + seed / 10], seed, values))
        chosen = rates((FIRST, SECOND)[seed])
        folders.append(write(root, f"{method}-searched", [0.7, 0.7, 0.7, 0.74], seed, values,
                             chosen, tries))  # fmt: skip
    return folders


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("searches")
    both = {"penalty_weight": 10.0, "layers": 2}
    choices = [{"penalty_weight": w, "layers": n} for w in (1.0, 10.0) for n in (1, 2)]
    folders = [
        *pair(root, "gcn", seeds=(0, 1)),
        *pair(root, "gat", shipped=0.002),
        write(root, "gin", [0.6] * 4, hyperparameters={"learning_rate": 0.001}),
        write(root, "coral", [0.6] * 4, hyperparameters=both, group="General OOD methods"),
        write(root, "coral-searched", [0.6] * 4, 0, both, [choices[3]] * 4,
              zip(choices, (0.5, 0.51, 0.52, 0.53)), group="General OOD methods"),
        # As with 'search: true'.
        write(root, "irm", [0.7] * 4, 0, {"learning_rate": 0.001}, rates(FIRST),
              zip(rates(VALUES), MEANS), group="General OOD methods"),
        write(root, "linear-tangent", [0.7] * 4, group="Linear"),
    ]  # fmt: skip
    summary, sites = summarised(root, folders)
    variants = [
        {"variant": f"{name}{end}", "method": name}
        for name in ("gcn", "gat", "gin", "coral")
        for end in ("", "-searched")
    ] + [{"variant": name, "method": name} for name in ("irm", "linear-tangent")]
    make_table(
        "variants", root / "searches", {"names": ["one", "searched"]},
        {"pairs": [["demo", "loso"]], "variants": variants},
        summaries=[summary], sites=[sites], runs=folders,
    )  # fmt: skip
    rows = pd.read_csv(root / "searches.csv", keep_default_na=False).set_index("method")
    return root, rows


def numbers(rows, method, *names):
    return [float(rows.loc[method, name]) for name in names]


def test_what_was_tried_and_chosen(made):
    rows = made[1]
    assert list(rows.index) == ["gcn", "gat", "gin", "coral", "irm", "linear-tangent"]
    words = ["setting", "tries", "values", "folds_chosen", "shipped", "status"]
    assert list(rows.loc["gcn", words]) == [
        "learning_rate", "3", "0.0003, 0.001, 0.003", "1, 2, 5", "0.001", "run",
    ], "folds of both seeds"  # fmt: skip
    assert list(rows.loc["coral", words]) == [
        "penalty_weight, layers", "4", "1 / 1, 1 / 2, 10 / 1, 10 / 2", "0, 0, 0, 4", "10 / 2", "run"
    ]  # fmt: skip
    assert list(rows.loc["gin", words]) == ["", "", "", "", "", "not run"]
    assert list(rows.loc["linear-tangent", words]) == ["", "", "", "", "", "run"]


def test_validation_is_compared_within_the_search(made):
    rows = made[1]
    names = ("validation_one", "validation_searched", "validation_shipped")
    one = (0.6 + 0.62 + 0.64 + 0.66) / 4
    assert numbers(rows, "gcn", *names) == pytest.approx([one + 0.1 / 8, 0.71, 0.65])
    assert numbers(rows, "coral", *names) == pytest.approx([0.6, 0.6, 0.53])
    assert numbers(rows, "gat", *names[:2]) == pytest.approx([one, 0.71])
    assert rows.loc["gat", "validation_shipped"] == "", "0.002 was not tried"
    assert rows.loc["gat", "shipped"] == "0.002"
    assert (rows.loc[["gin", "linear-tangent"], list(names[1:])] == "").all(axis=None)


def test_test_scores_are_paired_by_fold(made):
    stats = pytest.importorskip("scipy.stats")
    root, rows = made
    summaries = pd.read_csv(root / "loso.csv").set_index("variant")["auc_mean"]
    sites = pd.read_csv(root / "loso-sites.csv")
    folds = sites.pivot(index="fold", columns="variant", values="auc")
    for method in ("gcn", "gat", "coral"):
        found = numbers(rows, method, "auc_one", "auc_searched")
        assert found == [summaries[method], summaries[f"{method}-searched"]]
        difference = folds[f"{method}-searched"] - folds[method]
        half = stats.t.ppf(0.975, 3) * np.std(difference, ddof=1) / np.sqrt(len(SITES))
        expected = [difference.mean(), difference.mean() - half, difference.mean() + half]
        names = [f"auc_difference{end}" for end in ("", "_low", "_high")]
        found = numbers(rows, method, *names)
        assert found == pytest.approx(expected)
        p = stats.wilcoxon(difference.round(10), method="exact").pvalue
        assert numbers(rows, method, "p") == pytest.approx([p])
    assert (rows.loc[["gin", "linear-tangent"], ["auc_difference", "p", "verdict"]] == "").all(
        axis=None
    )


def test_ranks_count_all_rows(made):
    rows = made[1]
    one = pd.to_numeric(rows["auc_one"])
    best = pd.to_numeric(rows["auc_searched"]).fillna(one)
    for name, aucs in (("rank_one", one.drop("irm")), ("rank_searched", best)):
        expected = {method: 1 + int((aucs > aucs[method]).sum()) for method in aucs.index}
        assert rows[name][aucs.index].astype(int).to_dict() == expected


def test_a_method_that_is_always_searched_has_no_single_try(made):
    row = made[1].loc["irm"]
    assert list(row[["tries", "folds_chosen", "status"]]) == ["3", "0, 2, 2", "run"]
    assert row["auc_one"] == row["auc_difference"] == row["rank_one"] == ""
    assert float(row["auc_searched"]) > 0


def test_the_printed_table(made):
    text = (made[0] / "searches.md").read_text()
    lines = {
        "GCN": r"learning\_rate | 0.0003, 0.001, 0.003 | 1, 2, 5 | 64.2 | 71.0"
        " | # | # | # ± # | # | # | # [#, #] | undecided | # | #",
        "GIN": "not run | not run | not run | 60.0 | not run | # | not run | – | # | not run"
        " | – | – | – | –",
        "LINEAR-TANGENT": "– | – | – | 70.0 | – | # | – | – | # | – | – | – | – | –",
    }
    for label, line in lines.items():
        pattern = re.escape(f"| {label} | {line} |").replace(r"\#", r"[-+\d.]+")
        assert re.search(pattern, text), text
    assert "Test AUC One | Test AUC Searched | Test AUC Difference" in text
