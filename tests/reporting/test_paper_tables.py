"""Costs, block lengths and all numbers of the paper: ours and the paper's side by side."""

import json
import math

import numpy as np
import pandas as pd
import pytest
import yaml

from brio_core.reporting.catalogue import Given, catalogue
from brio_core.reporting.tables.paper import paper_numbers
from brio_core.reporting.tables.paper_vs_ours import compared_table
from tests.reporting.standins import (
    ROOT,
    make_table,
    summarised,
    write_block_lengths,
    write_cohort,
    write_run,
)

PAPER = pd.read_csv(ROOT / "config/paper/numbers.csv", keep_default_na=False)
COHORT = "abide-cc200"
VARIANTS = {
    "gcn": ("GCN", "General GNNs", 0.7),
    "brio": ("BRIO", "Ours", 1.3),
    "brio-block0.5x": ("BRIO (block length × 0.5)", "Ours", 1.2),
    "linear-correlation": ("Linear (correlation)", "Linear", 1.5),
    "core": ("CORE (reimplemented)", "Brain network methods", 1.1),
}
SCALES = {"brio-block0.5x": 0.5, "brio": 1.0, "brio-block2x": 2.0}


def planned(variants, *pairs):
    words = [
        {"variant": v, "method": v.split("-b")[0], "label": VARIANTS.get(v, (v,))[0],
         "group": VARIANTS.get(v, (v, "Ours"))[1],
         "change": {} if SCALES.get(v, 1) == 1 else {"block_length_scale": SCALES[v]}}
        for v in variants
    ]  # fmt: skip
    return {"pairs": pairs, "variants": words}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for variant, method in VARIANTS.items():
        for seed in (0, 1):
            write_run(root, variant, seed, COHORT, method=method, device="One GPU", group_size=7)
    runs = sorted((root / "runs" / COHORT / "loso").glob("*/seed-*"))
    summaries, sites = ([path] for path in summarised(root, runs))
    lengths = write_block_lengths(root)
    content = json.loads(lengths.read_text()) | {"cohort": COHORT}
    for fold in content["folds"]:
        fold["seconds"] = 2.5 * fold["block_length"]
    lengths.write_text(json.dumps(content))
    folder = write_cohort(root, COHORT)
    pairs = ([COHORT, "loso"], ["abcd-aal116", "loso"])
    wanted = planned(["gcn", "brio"], *pairs)
    make_table("efficiency", root / "efficiency", planned=wanted, summaries=summaries)
    files = {"summaries": summaries, "block_lengths": [lengths]}
    wanted = planned(SCALES, *pairs)
    make_table("block_lengths", root / "block-length", planned=wanted, sites=sites, **files)
    files |= {name: [folder / f"{name}.tsv"] for name in ("inclusion", "participants")}
    make_table("paper_vs_ours", root / "paper_vs_ours", **files)
    return root


def lines(table):
    return [[cell["text"] for cell in row["cells"]] for row in table["rows"] if not row["heading"]]


def test_costs_come_from_the_training_jobs(results):
    rows = pd.read_csv(results / "efficiency.csv")
    ours = rows[rows["cohort"] == COHORT].set_index("variant")
    metas = [
        json.loads((results / f"runs/{COHORT}/loso/brio/seed-{seed}/meta.json").read_text())
        for seed in (0, 1)
    ]
    per_epoch = [np.mean([fold["seconds_per_epoch"] for fold in meta["folds"]]) for meta in metas]
    assert ours.loc["brio", "seconds_per_epoch"] == pytest.approx(min(per_epoch))
    memory = max(meta["peak_memory_bytes"] for meta in metas)
    assert ours.loc["brio", "peak_memory_gb"] == pytest.approx(memory / 1e9)
    assert ours.loc["brio", "seconds"] == min(meta["seconds"] for meta in metas)
    assert ours.loc["brio", "device"] == "One GPU" and ours.loc["brio", "folds_together"] == 7
    text = (results / "efficiency.md").read_text()
    assert "One GPU" in text, "the hardware is named"


def test_the_time_of_one_seed_of_all_methods(tmp_path):
    for seed, seconds in enumerate((30.0, 10.0, 40.0)):
        values = {"seconds": seconds, "device": "One GPU"}
        write_run(tmp_path, "brio", seed, COHORT, **values)
        write_run(tmp_path, "gcn", seed, COHORT, **values | {"seconds": 10.0})
    summary, _ = summarised(tmp_path, sorted((tmp_path / "runs").glob("*/*/*/seed-*")))
    wanted = planned(["gcn", "brio"], [COHORT, "loso"])
    make_table("efficiency", tmp_path / "efficiency", planned=wanted, summaries=[summary])
    rows = pd.read_csv(tmp_path / "efficiency.csv").set_index("variant")
    # Seeds that took longer may have shared the machine.
    assert rows["seconds"].to_dict() == {"gcn": 10, "brio": 10}
    table = json.loads((tmp_path / "efficiency.json").read_text())
    assert [line[-1] for line in lines(table)] == ["One GPU", "One GPU"]
    total = "one seed of 2 methods on One GPU, one method after the other, takes 0.3 min"
    assert total in table["notes"][1]


def test_the_papers_costs_stand_beside_and_absent_cells_say_so(results):
    rows = pd.read_csv(results / "efficiency.csv").set_index(["cohort", "variant"])
    paper = (
        PAPER[PAPER["table"] == "efficiency"]
        .set_index(["cohort", "method", "quantity"])
        .sort_index()
    )
    row = rows.loc[("abcd-aal116", "brio")]
    assert row["status"] == "not run" and math.isnan(row["seconds_per_epoch"])
    wanted = paper.loc["abcd-aal116", "BRIO"]["paper"]
    assert row["paper_seconds_per_epoch"] == wanted["seconds_per_epoch"]
    assert row["paper_memory_gb"] == wanted["gpu_memory_gb"]
    table = json.loads((results / "efficiency.json").read_text())
    brio = [line for line in lines(table) if line[0] == "BRIO"]
    assert brio[1][1] == "not run" and brio[1][2] == f"{wanted['seconds_per_epoch']:g}"


def test_block_lengths_in_frames_and_seconds(results):
    folds = json.loads((results / "blocklength/demo/loso.json").read_text())["folds"]
    rows = pd.read_csv(results / "block-length.csv")
    rows = rows[rows["cohort"] == COHORT].set_index("variant")
    for variant, scale in SCALES.items():
        frames = [min(30, max(2, math.floor(scale * f["estimate"] + 0.5))) for f in folds]
        assert rows.loc[variant, "frames"] == np.median(frames)
        assert rows.loc[variant, "seconds"] == pytest.approx(2.5 * np.median(frames))
        assert (rows.loc[variant, "frames_min"], rows.loc[variant, "frames_max"]) == (
            min(frames), max(frames),
        )  # fmt: skip
    assert rows["status"].tolist() == ["run", "run", "not run"]
    summary = pd.read_csv(results / "loso.csv").set_index("variant")
    for variant in ("brio", "brio-block0.5x"):
        assert rows.loc[variant, "auc_mean"] == summary.loc[variant, "auc_mean"]
    table = json.loads((results / "block-length.json").read_text())
    assert [line[0] for line in lines(table)] == ["0.5 ×", "1 ×", "2 ×"] * 2
    assert lines(table)[2][1:] == ["not run"] * 8


def test_scores_beside_the_papers(results):
    metrics = pytest.importorskip("sklearn.metrics")
    rows = pd.read_csv(results / "paper_vs_ours.csv")
    own = rows.query(f"table == 'loso' and cohort == '{COHORT}'")
    own = own.set_index(["variant", "quantity"])
    paper = PAPER[PAPER["table"] == "loso"].set_index(["method", "cohort", "quantity"])["paper"]
    for variant, name in (("gcn", "GCN"), ("brio", "BRIO")):
        seeds = []
        for seed in (0, 1):
            path = results / f"runs/{COHORT}/loso/{variant}/seed-{seed}/predictions.csv"
            parts = pd.read_csv(path).query("split == 'test'").groupby("fold")
            seeds.append([metrics.roc_auc_score(part["label"], part["logit"]) for _, part in parts])
        aucs = 100 * np.mean(seeds, axis=0)
        for quantity, ours in (("auc_mean", aucs.mean()), ("auc_sd", aucs.std(ddof=1))):
            row = own.loc[(variant, quantity)]
            theirs = paper[name, COHORT, quantity]
            assert row["paper"] == theirs and row["ours"] == pytest.approx(ours)
            assert row["difference"] == pytest.approx(ours - theirs)
            assert row["low"] < ours < row["high"]
            deviation = np.std(100 * np.mean(seeds, axis=1), ddof=1)
            expected = (ours - theirs) / deviation if quantity == "auc_mean" else math.nan
            assert row["seed_deviations"] == pytest.approx(expected, nan_ok=True)
            assert row["contains"] == ("yes" if row["low"] <= theirs <= row["high"] else "no")
    assert (own.loc["gat", "status"] == "not run").all()
    core = own.loc["core"]
    assert (core["status"] == "run").all() and core["difference"].notna().all()
    assert core["contains"].isna().all(), "it can neither agree nor disagree"


def test_deviations_that_sampling_alone_would_exceed_are_counted(results):
    rows = pd.read_csv(results / "paper_vs_ours.csv").set_index(["table", "variant", "quantity"])
    summary = pd.read_csv(results / "loso.csv").set_index("variant")
    row = rows.loc[("loso", "brio", "auc_sd")].query(f"cohort == '{COHORT}'").iloc[0]
    assert row["sampling_low"] == pytest.approx(100 * summary.loc["brio", "auc_sd_sampling_low"])
    known = rows[rows["sampling_low"].notna()]
    assert set(known.index.get_level_values("quantity")) == {"auc_sd"}
    table = pd.read_csv(results / "paper_vs_ours.csv", keep_default_na=False, na_values=[""])
    table["method"] = table["method"].fillna("")
    # At larger sites the same deviations would be too small.
    table["sampling_low"] = table["sampling_low"] - table["sampling_low"].min() + 4.9
    # BRIO's stands in two tables of the paper and counts once.
    distinct = table[table["sampling_low"].notna()].drop_duplicates(["variant", "paper"])
    assert len(distinct) == len(known) - 1
    below = (distinct["paper"] < distinct["sampling_low"]).sum()
    assert 0 < below < len(distinct)
    words = f"{below} of {len(distinct)} standard deviations of AUC in the paper are smaller"
    printed = compared_table(table, Given(catalogue("tables")["paper_vs_ours"]), False)
    assert any(words in note for note in printed.notes)


def test_every_number_of_the_paper_is_there_once(results):
    rows = pd.read_csv(results / "paper_vs_ours.csv", keep_default_na=False)
    keys = ["table", "cohort", "method", "quantity"]
    assert not rows.duplicated(keys).any()
    # 17 methods, five cohorts, AUC and accuracy with deviations; three block lengths of BRIO.
    wanted = {"loso": 17 * 5 * 4, "id": 17 * 5 * 4, "block_length": 5 * 3 * 6}
    # Twelve methods on four cohorts: seconds and memory.
    wanted["efficiency"] = 12 * 4 * 2
    # Five cohorts with four counts; ABCD has one number of time points, the others two.
    wanted["datasets"] = 5 * 4 + 4 * 2 + 1
    assert rows["table"].value_counts().to_dict() == wanted
    assert set(rows["status"]) == {"run", "not run"}
    assert (rows["ours"] == "")[rows["status"] == "not run"].all()
    lines_of_text = (results / "paper_vs_ours.md").read_text().splitlines()
    numbers = [line for line in lines_of_text if line[:2] == "| " and line[2] != "*"]
    assert len(numbers) == len(rows) + 2, "Markdown lists every number"


def test_cohorts_blocks_and_marks(results):
    rows = pd.read_csv(results / "paper_vs_ours.csv").query(f"cohort == '{COHORT}'")
    data = rows[rows["table"] == "datasets"].set_index("quantity")
    people = pd.read_csv(results / f"cohorts/{COHORT}/participants.tsv", sep="\t")
    assert data.loc["samples", "ours"] == len(people)
    assert data.loc["patients", "ours"] == (people["label"] == 1).sum()
    assert data.loc["samples", "contains"] == "no"
    frames = pd.read_csv(results / f"cohorts/{COHORT}/inclusion.tsv", sep="\t")
    frames = pd.to_numeric(frames.query("kept == 'yes'")["frames_after"])
    assert data.loc["time_points_mean", "ours"] == pytest.approx(frames.mean(), abs=0.005)
    blocks = rows[rows["table"] == "block_length"].set_index(["variant", "quantity"])
    folds = json.loads((results / "blocklength/demo/loso.json").read_text())["folds"]
    frames = [fold["block_length"] for fold in folds]
    row = blocks.loc[("brio", "block_length_frames")]
    assert (row["ours"], row["low"], row["high"]) == (np.median(frames), min(frames), max(frames))
    table = json.loads((results / "paper_vs_ours.json").read_text())
    assert all("not run" not in line for line in lines(table)), "the page lists what was run"
    bold = [row["cells"][-1] for row in table["rows"] if not row["heading"]]
    assert all(cell["bold"] == (cell["text"] == "no") for cell in bold)


def test_every_method_of_the_paper_has_a_file():
    names = set(paper_numbers()["variant"]) - {""}
    variants = set()
    for path in (ROOT / "config/methods").glob("*.yaml"):
        method = yaml.safe_load(path.read_text())
        variants |= {method["method"], *method.get("variants", {})}
    assert names <= variants
    cohorts = {path.stem for path in (ROOT / "config/datasets").glob("*.yaml")}
    assert set(paper_numbers()["cohort"]) <= cohorts
