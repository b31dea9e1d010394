"""What is shared holds no person, and no number that gives a small group away."""

import pandas as pd
import pytest

from brio_core.reporting.export import HIDDEN, hide_small, shared_cohorts, shared_scores
from tests.programs import run_program
from tests.reporting.standins import summarised, write_cohort, write_run


def sites(*people):
    rows = [("x", f"s{i}", n + p, n, p, 100.0, 1) for i, (n, p) in enumerate(people)]
    total = ("x", "all", *(sum(row[i] for row in rows) for i in (2, 3, 4)), 100.0, len(rows))
    names = ("cohort", "site", "subjects", "negatives", "positives", "frames_mean", "excluded")
    return pd.DataFrame([*rows, total], columns=names)


def test_small_cells_are_empty_and_cannot_be_found_from_the_total():
    shared = shared_cohorts(sites((20, 30), (3, 40), (15, 14), (50, 60)), 10).set_index("site")
    assert shared["positives"].tolist() == [30, HIDDEN, HIDDEN, 60, 144]
    assert shared.loc["s1", "subjects"] == shared.loc["s2", "frames_mean"] == HIDDEN
    assert shared["excluded"].tolist() == [HIDDEN] * 5, "4 excluded people are few"
    assert shared_cohorts(sites(*[(20, 20)] * 12), 10)["excluded"].iloc[-1] == 12


@pytest.mark.parametrize("people, hidden", [
    ([(10, 10), (12, 12)], []), ([(9, 30), (20, 20), (30, 30)], [0, 1]), ([(1, 1), (2, 2)], [0, 1]),
])  # fmt: skip
def test_what_is_hidden(people, hidden):
    found = hide_small(pd.DataFrame(people, columns=["a", "b"]), ("a", "b"), 10)
    assert list(found[found].index) == hidden


def test_scores_of_small_folds_are_empty():
    rows = pd.DataFrame({
        "cohort": "x", "protocol": "loso", "variant": ["v"] * 3, "fold": list("ABC"),
        "n": [40, 12, 60], "positives": [20, 6, 30], "auc": 0.6, "acc": 0.5,
    })  # fmt: skip
    shared = shared_scores(rows, 10)
    assert shared["auc"].tolist() == [HIDDEN, HIDDEN, 0.6]
    assert "positives" not in shared


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
