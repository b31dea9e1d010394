"""Tables of results and of cohorts: printed numbers, bold, groups, escaping, permuted labels."""

import json
import re
from dataclasses import asdict

import pandas as pd
import pytest

from brio_core.evaluation.site_statistics import signed_rank
from brio_core.reporting.results import GROUPS
from brio_core.reporting.table import Cell, Row, Table, is_best, percent
from brio_core.reporting.tables.results import counts
from brio_core.reporting.writing import latex, markdown
from brio_core.system.errors import BrioError
from tests.programs import run_program
from tests.reporting.standins import (
    DATASET,
    METHODS,
    make_table,
    printed_lines,
    summarised,
    write_cohort,
    write_run,
)

ENTRY = {"title": "Unseen sites", "caption": "A caption."}
DATASETS = {"demo": DATASET}


def summarise(root, protocol):
    runs = sorted((root / "runs/demo" / protocol).glob("*/seed-*"))
    return summarised(root / "summaries", runs, protocol)[0]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for protocol in ("loso", "id"):
        for variant in METHODS:
            write_run(root, variant, protocol=protocol)
    write_run(root, "brio-wo-rs", method=("BRIO w/o RS", "Ours", 1.0))
    summaries = [summarise(root, protocol) for protocol in ("loso", "id")]
    result = run_program(
        "table", "results", "--summaries", *summaries, "--sites", "--entry", json.dumps(ENTRY),
        "--datasets", json.dumps(DATASETS), "--out-prefix", root / "tables" / "main",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return root


def printed(table, name):
    rows = [row["cells"] for row in table["rows"] if not row["heading"]]
    return next(cells for cells in rows if cells[0]["text"] == name)


def test_printed_numbers_are_those_of_the_summary(results):
    table = json.loads((results / "tables/main.json").read_text())
    full = pd.read_csv(results / "tables/main.csv")
    assert len(full) == 7 and "seconds_per_epoch" not in full
    for start, protocol in ((1, "loso"), (3, "id")):
        for _, row in full[full["protocol"] == protocol].iterrows():
            auc, acc = printed(table, row["label"])[start : start + 2]
            assert auc["text"] == f"{100 * row['auc_mean']:.1f}"
            assert auc["extra"] == f"± {100 * row['auc_sd']:.1f}"
            assert acc["text"] == f"{100 * row['acc_mean']:.1f}"
            assert acc["extra"] == f"± {100 * row['acc_sd']:.1f}"
    summary = pd.read_csv(results / "summaries/loso.csv").set_index("variant")["auc_mean"]
    again = full[full["protocol"] == "loso"].set_index("variant")["auc_mean"]
    assert again.loc[summary.index].tolist() == summary.tolist(), "full precision in the CSV"


def test_printed_numbers_come_from_the_predictions(results):
    """From predictions.csv to the printed cell, without any code of this project."""
    metrics = pytest.importorskip("sklearn.metrics")
    table = json.loads((results / "tables/main.json").read_text())
    for start, protocol in ((1, "loso"), (3, "id")):
        for variant, (label, *_) in METHODS.items():
            path = results / f"runs/demo/{protocol}/{variant}/seed-0/predictions.csv"
            folds = pd.read_csv(path).query("split == 'test'").groupby("fold")
            scores = pd.DataFrame(
                (metrics.roc_auc_score(part["label"], part["logit"]),
                 metrics.accuracy_score(part["label"], part["logit"] > 0))
                for _, part in folds
            )  # fmt: skip
            for cell, values in zip(printed(table, label)[start : start + 2], scores.T.to_numpy()):
                assert cell["text"] == f"{100 * values.mean():.1f}"
                assert cell["extra"] == f"± {100 * values.std(ddof=1):.1f}"


def test_rows_stand_in_the_groups_of_the_paper(results):
    table = json.loads((results / "tables/main.json").read_text())
    groups = [row["cells"][0]["text"] for row in table["rows"] if row["heading"]]
    assert groups == [group for group in GROUPS if group in groups] and len(groups) == 3
    labels = [row["cells"][0]["text"] for row in table["rows"] if not row["heading"]]
    assert labels == ["GCN", "BRIO", "BRIO w/o RS", "Linear (correlation)"]


def test_what_was_not_run_says_so(results):
    table = json.loads((results / "tables/main.json").read_text())
    assert [cell["text"] for cell in printed(table, "BRIO w/o RS")[3:]] == ["not run"] * 2
    assert "| not run | not run |" in (results / "tables/main.md").read_text()


def test_planned_cohorts_and_methods_without_results_say_so(results):
    gat = {"variant": "gat", "method": "gat", "label": "GAT", "group": "General GNNs"}
    planned = {"pairs": [["demo", "loso"], ["far", "loso"]], "variants": [gat]}
    make_table(
        "results", results / "planned", planned=planned, summaries=[results / "summaries/loso.csv"]
    )
    table = json.loads((results / "planned.json").read_text())
    assert [text for text, _ in table["spans"]] == ["", "demo", "far"]
    labels = [row["cells"][0]["text"] for row in table["rows"] if not row["heading"]]
    assert labels[:3] == ["GCN", "GAT", "BRIO"], "in the place that the paper gives it"
    assert [cell["text"] for cell in printed(table, "GAT")[1:]] == ["not run"] * 4
    assert [cell["text"] for cell in printed(table, "BRIO")[3:]] == ["not run"] * 2
    full = pd.read_csv(results / "planned.csv")
    missing = full[full["status"] == "not run"]
    assert set(zip(missing["cohort"], missing["variant"])) == {("demo", "gat"), ("far", "gat")}
    assert missing["auc_mean"].isna().all() and (full["status"] == "run").sum() == 4
    assert "far, unseen sites: not run." in (results / "planned.tex").read_text()


def test_variants_of_one_method_are_tested_against_it(tmp_path):
    """As methods are: differences at the same sites, each averaged over seeds."""
    stats = pytest.importorskip("scipy.stats")
    names = {"brio": 1.3, "brio-wo-rs": 0.4, "brio-wo-tr": 1.2}
    for seed in (0, 1):
        for variant, effect in names.items():
            words = (variant.upper(), "Ours", effect)
            folder = write_run(tmp_path, variant, seed, method=words)
            content = json.loads((folder / "meta.json").read_text()) | {"method": "brio"}
            (folder / "meta.json").write_text(json.dumps(content))
    runs = sorted((tmp_path / "runs").glob("*/*/*/seed-*"))
    summary, sites = summarised(tmp_path, runs)
    files = {"summaries": [summary], "sites": [sites]}
    path = make_table("results", tmp_path / "ablations", {"margin": 0.03}, **files)
    rows = pd.read_csv(path, keep_default_na=False, na_values=[""]).set_index("variant")
    auc = pd.read_csv(sites).pivot(index="fold", columns="variant", values="auc")
    p_values = []
    for variant in ("brio-wo-rs", "brio-wo-tr"):
        row, difference = rows.loc[variant], auc[variant] - auc["brio"]
        low, high = stats.t.interval(0.95, 6, difference.mean(), stats.sem(difference))
        found = [row[f"difference{end}"] for end in ("", "_low", "_high")]
        assert found == pytest.approx([difference.mean(), low, high])
        p_values.append(signed_rank(difference)[1])
        assert row["p"] == pytest.approx(p_values[-1]) and row["reference"] == "brio"
        assert row["verdict"] in ("better", "worse", "equivalent", "undecided")
    assert rows["p_holm"].min() == pytest.approx(min(1, 2 * min(p_values)))
    assert rows.loc["brio", ["difference", "p", "verdict", "reference"]].isna().all()
    lines = printed_lines(path)
    assert lines[0][:1] == ["BRIO"] and lines[0][3:] == ["–"] * 4
    assert lines[1][3].startswith("-") and float(lines[1][3]) == pytest.approx(
        100 * rows.loc["brio-wo-rs", "difference"], abs=0.051
    )
    text = path.with_suffix(".md").read_text()
    assert "± 3.0 points" in text and "seeds vary in it" in text and "share training sites" in text


def test_notes_explain_deviation_bracket_seeds_and_sites(results):
    for ending in ("md", "tex"):
        text = (results / f"tables/main.{ending}").read_text()
        assert "standard deviation over held-out sites" in text and "averaged over seeds" in text
        assert "98 subjects, 7 sites, 7 test folds, 1 seed" in text


def test_rows_with_more_or_fewer_seeds_are_named():
    rows = [("GCN", 3), ("GIN", 3), ("BRIO", 5), ("Linear (a)", 1), ("Linear (b)", 1)]
    part = pd.DataFrame(rows, columns=["label", "seeds"])
    part = part.assign(rings=1, subjects=9, sites=5, folds=5, left_out=0)
    end = "3 seeds (5 of BRIO; 1 of Linear (a), Linear (b))."
    assert counts(part, ("x", "loso"), {}).endswith(f"5 test folds, {end}")
    assert counts(part.iloc[:2], ("x", "loso"), {}).endswith("5 test folds, 3 seeds.")


def test_markdown_is_a_table_of_equal_width(results):
    lines = (results / "tables/main.md").read_text().splitlines()
    bars = [line.count("|") for line in lines if line.startswith("|")]
    assert set(bars) == {6} and len(bars) == 2 + 3 + 4


def test_a_table_can_be_read_back(results):
    table = Table.of(json.loads((results / "tables/main.json").read_text()))
    assert markdown(table) == (results / "tables/main.md").read_text()
    assert json.loads(json.dumps(asdict(table))) == json.loads(
        (results / "tables/main.json").read_text()
    )


def test_best_is_bold_with_ties_in_print():
    values = [0.70004, 0.69996, 0.68]
    assert [is_best(value, values) for value in values] == [True, True, False]
    assert not is_best(0.9, [0.9]), "one row alone is not the best of anything"
    values = [0.5, float("nan"), 0.4]
    assert [is_best(value, values) for value in values] == [True, False, False]
    assert percent(float("nan")) == "–"


def test_bold_marks_the_highest_mean(results):
    table = json.loads((results / "tables/main.json").read_text())
    for column in range(1, 5):
        cells = [row["cells"][column] for row in table["rows"] if not row["heading"]]
        numbers = [float(c["text"]) if c["text"] != "not run" else -1 for c in cells]
        assert [c["bold"] for c in cells] == [number == max(numbers) for number in numbers]


def test_names_cannot_break_markdown_or_latex():
    name = r"a|b_<script>&%$#{}~^\*"
    table = Table(name, name, ("Method", name), (Row((Cell(name),), True), Row((Cell(name),) * 2)))
    text = markdown(table)
    assert "<script>" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {3}
    tex = latex(table, "x")
    body = tex.split("\n", 1)[1]
    assert not re.search(r"(?<!\\)[%$#]", body.replace(r"$\pm$", ""))
    assert r"\textbackslash{}" in tex and r"\_" in tex and r"\textasciicircum{}" in tex
    assert tex.count(r"\begin{") == tex.count(r"\end{") == 2


def test_a_table_longer_than_a_page_breaks_in_latex():
    rows = tuple(Row((Cell(f"m{i}"), Cell("1.0"))) for i in range(200))
    tex = latex(Table("Long", "Caption", ("Method", "AUC"), rows, notes=("Note.",)), "long")
    assert r"\begin{longtable}{lr}" in tex and r"\end{longtable}" in tex and r"\endhead" in tex
    assert "table*" not in tex and tex.count("{") == tex.count("}") and tex.count(r" \\") == 202


def test_permuted_labels_say_whether_chance_is_inside(tmp_path):
    protocols = [f"loso-permuted-{number}" for number in range(1, 4)]
    for protocol in protocols:
        for variant in METHODS:
            write_run(tmp_path, variant, protocol=protocol)
    summaries = [summarise(tmp_path, protocol) for protocol in protocols]
    rows = pd.read_csv(summaries[0])
    columns = ["auc_mean", "auc_sites_low", "auc_sites_high"]
    rows.loc[rows["variant"] == "gcn", columns] = [0.97, 0.95, 0.99]
    rows.to_csv(summaries[0], index=False)
    make_table("permuted", tmp_path / "permuted", summaries=summaries)
    full = pd.read_csv(tmp_path / "permuted.csv").set_index("variant")
    parts = pd.concat([pd.read_csv(path) for path in summaries])
    for variant, row in full.iterrows():
        own = parts[parts["variant"] == variant]
        assert row["permutations"] == 3
        assert row["auc_mean"] == pytest.approx(own["auc_mean"].mean())
        below = ((own["auc_mean"] - own["auc_sites_low"]) ** 2).sum() ** 0.5 / 3
        assert row["auc_low"] == pytest.approx(row["auc_mean"] - below)
        assert row["contains_chance"] == (
            "yes" if row["auc_low"] <= 0.5 <= row["auc_high"] else "no"
        )
    assert full.loc["gcn", "contains_chance"] == "no"
    assert full.loc[["brio", "linear-correlation"], "contains_chance"].tolist() == ["yes", "yes"]
    assert "3 permutations of the labels" in (tmp_path / "permuted.md").read_text()
    write_run(tmp_path, "gcn")
    mixed = [summaries[0], summarise(tmp_path, "loso")]
    for name, words in (("permuted", "mixes"), ("results", "holds permuted labels")):
        with pytest.raises(BrioError, match=words):
            make_table(name, tmp_path / "mixed", summaries=mixed)
    assert not (tmp_path / "mixed.csv").exists()


def test_cohort_table_counts_everyone(tmp_path):
    folder = write_cohort(tmp_path)
    files = {name: [folder / f"{name}.tsv"] for name in ("inclusion", "participants")}
    make_table("cohorts", tmp_path / "cohort", datasets=DATASETS, **files)
    rows = pd.read_csv(tmp_path / "cohort.csv")
    everyone = pd.read_csv(folder / "inclusion.tsv", sep="\t")
    total, sites = rows.iloc[-1], rows.iloc[:-1]
    for column in ("subjects", "positives", "negatives", "excluded"):
        assert sites[column].sum() == total[column]
    assert total["subjects"] + total["excluded"] == len(everyone)
    kept = everyone[everyone["kept"] == "yes"]["frames_after"].astype(float)
    assert (total["frames_mean"], total["frames_sd"]) == pytest.approx((kept.mean(), kept.std()))
    text = (tmp_path / "cohort.md").read_text()
    assert "98 of 103 candidate subjects from 7 sites are used; 5 are excluded" in text
    assert "| Patient | Control |" in text and "image missing (2)" in text
