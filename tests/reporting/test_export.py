"""Aggregates that go out: an attacker who solves for the hidden counts does not find them."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linprog

from brio_core.reporting.export import (
    CLASSES,
    HIDDEN,
    hidden_groups,
    hidden_sites,
    shared_cohorts,
    shared_scores,
    shared_summaries,
)
from tests.programs import run_program
from tests.reporting.standins import make_table, summarised, write_cohort, write_profile, write_run

LEAST, KNOWN = 10, 4


def sites(*people, names=None, cohort="x"):
    """Rows of the table of cohorts, with one excluded person at every site."""
    names = names or [f"s{i}" for i in range(len(people))]
    rows = [(cohort, name, n + p, n, p, 100.0, 1) for name, (n, p) in zip(names, people)]
    total = (cohort, "all", *(sum(row[i] for row in rows) for i in (2, 3, 4)), 100.0, len(rows))
    columns = ("cohort", "site", "subjects", *CLASSES, "frames_mean", "excluded")
    return pd.DataFrame([*rows, total], columns=columns)


def bounds(shared: pd.DataFrame, known: int) -> dict[tuple[str, str], tuple[float, float]]:
    """What an attacker finds: the least and the most that every hidden count can be.

    Unknown are the counts of both classes at all listed sites. Known are all numbers that are
    shown, each as one equation, and that a site has ``known`` people of each class at least. A
    system of one total has whole corners, so that bounds over real numbers are those over whole
    ones.
    """
    listed, total = shared.iloc[:-1].reset_index(drop=True), shared.iloc[-1]
    cells = [(row, name) for row in listed.index for name in CLASSES]
    equations, values = [], []
    for row, line in [*listed.iterrows(), (None, total)]:
        for column in ("subjects", *CLASSES):
            if line[column] != HIDDEN:
                used = CLASSES if column == "subjects" else [column]
                equations.append([
                    float(name in used and row in (None, place)) for place, name in cells
                ])  # fmt: skip
                values.append(float(line[column]))
    found = {}
    for number, (row, name) in enumerate(cells):
        if listed.loc[row, name] != HIDDEN:
            continue
        ends = []
        for sign in (1, -1):
            goal = np.zeros(len(cells))
            goal[number] = sign
            solved = linprog(goal, A_eq=equations or None, b_eq=values or None, bounds=(known, 1e6))
            assert solved.status == 0, solved.message
            ends.append(sign * solved.fun)
        found[listed.loc[row, "site"], name] = tuple(ends)
    return found


def is_kept_secret(rows: pd.DataFrame, known: int = KNOWN) -> bool:
    """Whether all small counts are hidden, and every hidden one has far bounds."""
    shared = shared_cohorts(rows, LEAST, known)
    for cohort, part in shared.groupby("cohort", sort=False):
        truth = rows[rows["cohort"] == cohort].iloc[:-1].set_index("site")
        found = bounds(part, known)
        small = [(site, name) for site in truth.index for name in CLASSES
                 if 0 < truth.loc[site, name] < LEAST]  # fmt: skip
        if not set(small) <= set(found):
            return False
        if any(high - low < LEAST - 1e-6 for low, high in found.values()):
            return False
    return True


@pytest.mark.parametrize(
    "people",
    [
        [(20, 30), (4, 40), (15, 14), (50, 60)],
        [(0, 0), (5, 30), (20, 20), (30, 30)],  # the first is excluded as a whole
        [(4, 30), (5, 30), (40, 40), (50, 50)],  # the sum of two hidden ones is small
        [(4, 4), (5, 5), (4, 4)],  # the total is small as well
        [(9, 9), (9, 9)],
        [(5, 50)],
        [(12, 12), (10, 10)],
    ],
)
def test_the_attacker_finds_no_small_count(people):
    assert is_kept_secret(sites(*people))


def test_the_attacker_finds_none_of_many_cohorts():
    generator = np.random.default_rng(0)
    for _ in range(40):
        people = generator.integers(
            KNOWN, generator.choice([12, 40, 200]), (generator.integers(1, 9), 2)
        )
        people[generator.random(len(people)) < 0.1] = 0
        assert is_kept_secret(sites(*map(tuple, people.tolist()))), people


def test_a_site_may_be_called_all():
    people = [(20, 30), (4, 40), (15, 14), (50, 60)]
    shared = shared_cohorts(sites(*people, names=["A", "all", "B", "C"]), LEAST, KNOWN)
    assert shared["positives"].tolist() == [30, HIDDEN, HIDDEN, 60, 144]


def test_sites_of_which_nobody_is_used_are_not_listed():
    shared = shared_cohorts(sites((0, 0), (5, 30), (20, 20), (30, 30)), LEAST, KNOWN)
    assert shared["site"].tolist() == ["s1", "s2", "s3", "all"]


def test_what_is_shown_beside_counts():
    shared = shared_cohorts(sites((20, 30), (4, 40), (15, 14), (50, 60)), LEAST, KNOWN)
    assert shared["frames_mean"].tolist() == [100, HIDDEN, HIDDEN, 100, HIDDEN]
    assert shared["excluded"].tolist() == [HIDDEN] * 5, "4 excluded people are few"
    shared = shared_cohorts(sites(*[(20, 20)] * 12), LEAST, KNOWN)
    assert shared["excluded"].iloc[-1] == 12 and shared["frames_mean"].iloc[-1] == 100


def test_a_site_is_hidden_in_all_cohorts():
    """The same people in two parcellations, one of which leaves some out."""
    two = pd.concat([
        sites((20, 30), (8, 40), (15, 14), (50, 60), cohort="cc200"),
        sites((11, 11), (12, 40), (15, 14), (50, 60), cohort="aal116"),
    ])  # fmt: skip
    hidden = hidden_sites(shared_cohorts(two, LEAST, KNOWN))
    assert hidden["cc200"] == hidden["aal116"] and {"s1", "s2"} <= hidden["cc200"]
    assert is_kept_secret(two)


@pytest.mark.parametrize("people, hidden", [
    ([(10, 10), (12, 12)], []), ([(9, 30), (20, 20), (30, 30)], [0, 1]), ([(1, 1), (2, 2)], [0, 1]),
])  # fmt: skip
def test_what_is_hidden(people, hidden):
    found = hidden_groups(pd.DataFrame(people, columns=["a", "b"]), LEAST)
    assert list(found[found].index) == hidden


def scores(**changes):
    return pd.DataFrame({
        "cohort": "x", "protocol": "loso", "variant": ["v"] * 3, "fold": list("ABC"),
        "n": [40, 12, 60], "positives": [20, 6, 30], "auc": 2 / 3, "acc": 0.5, **changes,
    })  # fmt: skip


def test_scores_of_small_folds_are_empty():
    shared = shared_scores(scores(), {}, LEAST)
    assert shared["auc"].tolist() == [HIDDEN, HIDDEN, 0.667]
    assert not {"positives", "n"} & set(shared)
    shared = shared_scores(scores(), {"x": {"C"}}, LEAST)
    assert shared["auc"].tolist() == [HIDDEN] * 3
    assert (shared_scores(scores(positives=[20, 6, 30], n=60), {"x": {None}}, 1)["acc"] == "").all()


def test_scores_of_a_small_cohort_are_empty():
    rows = pd.DataFrame({"cohort": ["x", "y"], "variant": "v", "subjects": 9, "auc_mean": 2 / 3})
    shared = shared_summaries(rows, {"x": {None}, "y": {"A"}})
    assert shared["auc_mean"].tolist() == [HIDDEN, 0.667] and "subjects" not in shared


def test_export_holds_no_person(tmp_path):
    folder = write_cohort(tmp_path)
    runs = [write_run(tmp_path, variant) for variant in ("gcn", "brio")]
    summary, per_site = summarised(tmp_path / "summaries/main/demo", runs)
    done = run_program(
        "export", "--inclusion", folder / "inclusion.tsv", "--participants",
        folder / "participants.tsv", "--summaries", summary, "--sites", per_site,
        "--smallest-group", 10, "--out-dir", tmp_path / "export",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    written = {path.name: path.read_text() for path in (tmp_path / "export").iterdir()}
    names = {"cohorts.csv", "scores-main-demo-loso.csv", "sites-main-demo-loso.csv", "README.md"}
    assert set(written) == names
    people = pd.read_csv(folder / "participants.tsv", sep="\t", dtype=str)["subject"]
    assert not [name for name in people if any(name in text for text in written.values())]
    assert "fewer than 10 people" in written["README.md"]
    shown = pd.read_csv(tmp_path / "export/cohorts.csv", dtype=str, keep_default_na=False)
    assert (shown["subjects"].iloc[:-1] == HIDDEN).all() and shown["subjects"].iloc[-1] == "98"


def test_the_table_of_sites_shows_nobody(tmp_path):
    """A group of one is that person's age; with it goes what would give it away."""
    path = write_profile(tmp_path)
    people = pd.read_csv(path, sep="\t", keep_default_na=False, dtype=str)
    alone = people[(people["site"] == "Elm") & (people["label"] == "1")].index
    people.drop(alone[1:]).to_csv(path, sep="\t", index=False)
    rows = pd.read_csv(make_table("sites", tmp_path / "sites", profiles=[path]))
    patients = rows[rows["label"] == 1].set_index("site")
    assert patients.loc["Elm", "subjects"] == 1
    hidden = patients.index[patients["age_mean"].isna()]
    assert "Elm" in hidden and len(hidden) == 2 and "all" not in hidden
    assert patients.loc[hidden].drop(columns=["cohort", "label", "subjects"]).isna().all(axis=None)
    assert rows[rows["label"] == 0]["age_mean"].notna().all()

    # The age of one person only is known.
    birch = (people["site"] == "Birch") & (people["label"] == "0")
    people.loc[people.index[birch][1:], "age"] = "n/a"
    people.to_csv(path, sep="\t", index=False)
    rows = pd.read_csv(make_table("sites", tmp_path / "sites", profiles=[path]))
    (row,) = rows[(rows["site"] == "Birch") & (rows["label"] == 0)].to_dict("records")
    assert np.isnan(row["age_mean"]) and row["mean_fd_mean"] > 0
