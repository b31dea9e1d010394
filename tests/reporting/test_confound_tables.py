"""Tables of confounds, of motion-matched subjects and of learning curves, from stand-in runs."""

import json

import numpy as np
import pandas as pd
import pytest

from brio_core.reporting import plotting
from brio_core.reporting.catalogue import Given, catalogue
from brio_core.reporting.pages.overview import render
from tests.reporting.standins import (
    DATASET,
    SITES,
    make_table,
    printed_lines,
    write_curve,
    write_profile,
    write_run,
    write_run_config,
)

DATASETS = {"demo": DATASET}


def write_people(root, **columns):
    """A profile with some columns replaced."""
    path = write_profile(root)
    people = pd.read_csv(path, sep="\t")
    motion = np.random.default_rng(0).uniform(0.05, 0.4, len(people))
    people.assign(**{"mean_fd": motion} | columns).to_csv(path, sep="\t", index=False, na_rep="n/a")
    return path


def read(path):
    return pd.read_csv(path), json.loads(path.with_suffix(".json").read_text())


def test_confounds_are_adjusted_for_and_counted(tmp_path):
    runs = [write_run(tmp_path, name, seed) for name in ("gcn", "brio") for seed in (0, 1)]
    profile = write_people(tmp_path, age=lambda people: people["age"].where(people.index > 3))
    path = make_table(
        "confounds", tmp_path / "confounds", datasets=DATASETS, runs=runs, profiles=[profile]
    )
    rows, printed = read(path)
    assert rows.groupby("variant").size().tolist() == [10, 10]
    whole = rows[rows["group_of_subjects"].isin(["all", "adjusted"])]
    assert (whole["subjects"] == 98 - 4).all() and (whole["sites"] == len(SITES)).all()
    assert rows.loc[rows["group_of_subjects"] == "adjusted", "explained"].abs().max() < 0.3
    note = printed["notes"][-1]
    assert "adjusted for age, sex, motion, scan length" in note and "Unknown: age of 4" in note
    assert [line[0] for line in printed_lines(path)] == ["GCN", "BRIO"]
    assert sum(width for _, width in printed["spans"]) == len(printed["columns"])


def test_a_cohort_without_covariates_has_no_rows(tmp_path):
    runs = [write_run(tmp_path, "gcn")]
    nothing = dict.fromkeys(("age", "male", "mean_fd"), np.nan)
    profile = write_people(tmp_path, frames=120, **nothing)
    path = make_table("confounds", tmp_path / "confounds", runs=runs, profiles=[profile])
    rows, printed = read(path)
    assert rows.empty and not printed["rows"]
    assert "No cohort has covariates" in printed["notes"][-1]


def test_matched_subjects_stand_beside_all(tmp_path):
    profile = write_people(tmp_path)
    whole = [write_run(tmp_path, name) for name in ("gcn", "brio")]
    pairs = [write_run(tmp_path, name, protocol="loso-motion-matched") for name in ("gcn", "brio")]
    for folder in pairs:
        table = pd.read_csv(folder / "predictions.csv")
        kept = table["subject"].str.slice(-3).astype(int) % 14 < 10
        table[kept].to_csv(folder / "predictions.csv", index=False)
    path = make_table(
        "motion_matched", tmp_path / "pairs", datasets=DATASETS,
        runs=[*whole, *pairs], profiles=[profile],
    )  # fmt: skip
    rows, printed = read(path)
    assert (rows["all_subjects"] == 98).all() and (rows["tested_subjects"] == 70).all()
    row = rows[rows["variant"] == "brio"].iloc[0]
    change = row["tested_auc"] - row["all_auc"]
    assert row["change"] == pytest.approx(change) and row["matched_auc"] != row["tested_auc"]
    assert "35 pairs of 7 sites, from 98 subjects of 7 sites" in printed["notes"][-1]
    alone = make_table("motion_matched", tmp_path / "alone", runs=pairs, profiles=[profile])
    assert [line[1] for line in printed_lines(alone)] == ["–", "–"]


def test_learning_curve_compares_equal_numbers(tmp_path):
    write_curve(tmp_path)
    sites, runs = sorted(tmp_path.glob("*-sites.csv")), sorted(tmp_path.glob("runs/*/*/*/seed-0"))
    path = make_table(
        "learning_curve", tmp_path / "curve", datasets=DATASETS, sites=sites, runs=runs
    )
    rows, printed = read(path)
    points = rows[rows["variant"] == "gcn"].set_index(["arm", "sites"])
    assert list(points.index) == [
        ("sites", "2"), ("subjects", "2"), ("sites", "4"), ("subjects", "4"), ("sites", "all"),
    ]  # fmt: skip
    # The slow reading: mean over draws at a site, then over sites.
    tables = [pd.read_csv(tmp_path / f"loso-sites-4-draw-{draw}-sites.csv") for draw in (1, 2)]
    own = pd.concat(tables).query("variant == 'gcn'").groupby("fold")["auc"].mean()
    point = points.loc[("sites", "4")]
    assert point["auc_mean"] == pytest.approx(own.mean()) and point["draws"] == 2
    other = points.loc[("subjects", "4"), "auc_mean"]
    assert point["difference"] == pytest.approx(other - own.mean())
    assert point["training_subjects"] == points.loc[("subjects", "4"), "training_subjects"] == 56
    assert [line[0] for line in printed_lines(path)] == ["2", "4", "all"] * 2
    assert "Draws of each number: 2." in printed["notes"]


def test_a_number_that_leaves_nobody_out_is_no_point(tmp_path):
    write_curve(tmp_path, sizes=(2, 6), draws=1)
    sites, runs = sorted(tmp_path.glob("*-sites.csv")), sorted(tmp_path.glob("runs/*/*/*/seed-0"))
    path = make_table("learning_curve", tmp_path / "curve", sites=sites, runs=runs)
    assert [line[0] for line in printed_lines(path)] == ["2", "all"] * 2


def test_an_unfinished_curve_shows_what_is_there(tmp_path):
    write_curve(tmp_path, draws=1)
    chosen = ["loso-sites-2-draw-1", "loso-subjects-2-draw-1", "loso-subjects-4-draw-1"]
    path = make_table(
        "learning_curve", tmp_path / "curve",
        sites=[tmp_path / f"{one}-sites.csv" for one in chosen],
        runs=[path for one in chosen for path in sorted(tmp_path.glob(f"runs/*/{one}/*/seed-0"))],
    )  # fmt: skip
    lines = printed_lines(path)
    assert [line[0] for line in lines] == ["2", "4"] * 2
    assert lines[1][2] == "not run" and lines[1][4] == "" and lines[0][4] != ""


def test_the_page_shows_both_curves_and_counts_draws(tmp_path):
    write_curve(tmp_path)
    files = {
        "sites": sorted(map(str, tmp_path.glob("*-sites.csv"))),
        "runs": sorted(map(str, tmp_path.glob("runs/*/*/*/seed-0"))),
    }
    table = make_table("learning_curve", tmp_path / "curve", datasets=DATASETS, **files)
    given = Given(catalogue("figures")["learning_curve"], files, datasets=DATASETS)
    plotting.save(given.make(), given, tmp_path / "figure")
    summaries = sorted(set(tmp_path.glob("loso*.csv")) - set(tmp_path.glob("*-sites.csv")))
    page = render(
        tables=[str(table.with_suffix(".json"))], figures=[str(tmp_path / "figure.png")],
        summaries=list(map(str, summaries)), **files, config=str(write_run_config(tmp_path)),
        datasets=DATASETS, command="snakemake", out=str(tmp_path / "index.html"),
    )  # fmt: skip
    assert "unseen sites, 8 draws of training subjects" in page
    assert "How many sites do I need?" in page and "AUC, as many of all sites" in page
    auc = pd.read_csv(tmp_path / "loso.csv").set_index("variant").loc["gcn", "auc_mean"]
    assert f"{100 * auc:.1f} [" in page
    assert printed_lines(table)[2][2] == f"{100 * auc:.1f}", "headline and table say the same"
