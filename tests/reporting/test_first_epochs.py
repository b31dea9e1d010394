"""The table of checkpoints with other first epochs, against sums by hand."""

import numpy as np
import pandas as pd
import pytest

from tests.reporting.standins import make_table, printed_lines, summarised, write_course, write_run

# Cross-selected AUC: 0.45 from the first epoch on, 0.55 from the second, 0.65 from the third.
RISING = [0.9, 0.5, 0.6, 0.7], [0.4, 0.9, 0.5, 0.6]
FLAT = [0.5] * 4, [0.6] * 4
LONGER = RISING[0] + [1.0], RISING[1] + [1.0]
SINGLE = [0.5, 0.6, 0.7, 0.8], [None] * 4
IRM, GSAT = ("IRM", "General OOD methods", 0.7), ("GSAT", "Graph OOD methods", 0.7)


def first_epoch_table(root, folders, variants=()):
    planned = {"pairs": [["demo", "loso"]], "variants": variants}
    entry = {"first_epochs": [0, 15, 30, 50, 75]}
    # Which summary it is does not matter here.
    summary, sites = summarised(root, folders[:1])
    files = {"runs": folders, "summaries": [summary], "sites": [sites]}
    return make_table("checkpoints", root / "table", entry, planned, **files)


def write(root, variant, courses, seed=0, patience=0, method=None):
    hyperparameters = {"epochs": len(courses[0][0]), "patience": patience}
    return write_course(root, variant, courses, seed, 2, hyperparameters, method)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("first-epochs")
    folders = [
        write(root, "brio", (RISING, FLAT)),
        write(root, "brio", (RISING, RISING), seed=1),
        write(root, "irm", (FLAT, FLAT), method=IRM),
        write(root, "gat", (RISING, FLAT), method=("GAT", "General GNNs", 0.7)),
        write(root, "gin", (LONGER, LONGER), method=("GIN", "General GNNs", 0.7)),
        write(root, "gsat", (RISING, RISING), patience=2, method=GSAT),
        write_run(root, "linear-correlation"),
    ]
    planned = {"variant": "gcn", "method": "gcn", "label": "GCN", "group": "General GNNs"}
    first_epoch_table(root, folders, [planned])
    return root, pd.read_csv(root / "table.csv").set_index("variant")


def test_other_first_epochs_are_judged_from_the_same_courses(made):
    _, rows = made
    brio = rows.loc["brio"]
    assert (brio["trainings"], brio["epochs"], brio["first_epoch"]) == (2, 4, 2)
    assert brio["validation_crossed"] == pytest.approx(0.55)
    # Seeds are averaged within a fold: 0.1 in the first and 0.05 in the second.
    for passed, factor in ((0, -1), (15, -1), (30, 0), (50, 1), (75, 1)):
        assert brio[f"change_from_{passed}"] == pytest.approx(0.075 * factor, abs=1e-12)
    assert brio["change_from_50_se"] == pytest.approx(np.std([0.1, 0.05], ddof=1) / 2**0.5)


def test_others_alike_are_pooled(made):
    _, rows = made
    together = rows.loc["others"]
    assert together["trainings"] == 2, "neither BRIO's own nor the one with more epochs"
    assert rows.index[-1] == "gcn", "planned ones come last"
    assert together["change_from_50"] == pytest.approx((0.05 + 0) / 2)


def test_one_other_variant_is_not_pooled(tmp_path):
    folders = [
        write(tmp_path, "brio", (RISING, FLAT)), write(tmp_path, "irm", (FLAT, FLAT), method=IRM)
    ]  # fmt: skip
    first_epoch_table(tmp_path, folders)
    assert set(pd.read_csv(tmp_path / "table.csv")["variant"]) == {"brio", "irm"}


def test_what_might_have_stopped_elsewhere_is_not_judged(made):
    root, rows = made
    assert rows.loc["gsat"].filter(like="change").isna().all()
    assert rows.loc["linear-correlation"].filter(like="change").isna().all()
    lines = {line[0]: line[-5:] for line in printed_lines(root / "table.csv")}
    assert lines["GSAT"] == ["–"] * 5
    assert rows.loc["gcn", "status"] == "not run"
    down, up = ["-7.5 ± 2.5"] * 2, ["+7.5 ± 2.5"] * 2
    assert lines["BRIO"] == [*down, "+0.0 ± 0.0", *up]


def test_a_fold_with_one_usable_validation_site_is_left_out(tmp_path):
    first_epoch_table(tmp_path, [write(tmp_path, "brio", (SINGLE, RISING))])
    row = pd.read_csv(tmp_path / "table.csv").set_index("variant").loc["brio"]
    assert row["change_from_50"] == pytest.approx(0.1)
    assert pd.isna(row["change_from_50_se"]), "one fold has no error"
    assert "| +10.0 ± – |" in (tmp_path / "table.md").read_text()


def test_nothing_that_was_trained_in_epochs(tmp_path):
    first_epoch_table(tmp_path, [write_run(tmp_path, "linear-correlation")])
    rows = pd.read_csv(tmp_path / "table.csv")
    assert rows["variant"].tolist() == ["linear-correlation"]
    assert rows.filter(like="change_from").isna().all(axis=None)
