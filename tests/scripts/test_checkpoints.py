"""checkpoint_table against sums by hand."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.scripts.standins import SITES, run_program, write_run

FOLDS = SITES[:3]
# Validation AUCs from epoch 1 on, and the chosen epoch; the first two epochs are not eligible.
WHOLE = [0.9, 0.8, 0.5, 0.6, 0.5, 0.7, 0.6, 0.55, 0.6, 0.5, 0.55, 0.1], 6  # 4.4 / 8 around it
CUT = [0.2, 0.3, 0.6, 0.8, 0.7, 0.5], 4  # 1.8 / 3
LAST = [0.1] * 6 + [0.6] * 5 + [0.75], 12  # 3.0 / 5
METHODS = {
    "gsat": ("GSAT", "Graph OOD methods", 0.7),
    "irm": ("IRM", "General OOD methods", 0.7),
    "gin": ("GIN", "General GNNs", 0.7),
}
WORDS = [{"variant": name, "method": name, "label": METHODS[name][0], "group": METHODS[name][1]}
         for name in ("gin", "gsat")]  # fmt: skip


def write_trained(root, variant, courses, seed=0, first_epoch=3) -> Path:
    """A run with these courses of validation, one per fold."""
    folder = write_run(
        root, variant, seed, sites=FOLDS, method=METHODS.get(variant), settings={"epochs": 12}
    )
    lines, folds = ["fold,epoch,loss,validation_auc"], []
    for name, (aucs, epoch) in zip(FOLDS, courses):
        lines += [f"{name},{number},0.5,{auc}" for number, auc in enumerate(aucs, start=1)]
        record = {"selected_epoch": epoch, "validation_auc": aucs[epoch - 1], "epochs": len(aucs)}
        folds.append({"name": name, "first_epoch": first_epoch, **record})
    (folder / "history.csv").write_text("\n".join(lines) + "\n")
    meta = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps(meta | {"folds": folds}))
    return folder


def checkpoint_table(root, folders, settings=(("demo", "loso"),), variants=()):
    summary = root / "loso.csv"
    done = run_program("summarise", "--runs", *folders, "--experiment", "main", "--out", summary)
    assert done.returncode == 0, done.stderr
    return run_program(
        "checkpoint_table", "--summaries", summary, "--runs", *folders,
        "--experiment", json.dumps({"title": "T", "caption": "C"}),
        "--planned", json.dumps({"settings": settings, "variants": variants}),
        "--out-prefix", root / "checkpoints",
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    folders = [
        write_trained(root, "brio", (WHOLE, CUT, LAST)),
        write_trained(root, "brio", (CUT, CUT, CUT), seed=1),
        write_run(root, "linear-correlation", sites=FOLDS),
    ]
    settings = (("demo", "loso"), ("srpbs-aal116", "loso"))
    done = checkpoint_table(root, folders, settings, WORDS)
    assert done.returncode == 0, done.stderr
    return root, pd.read_csv(root / "checkpoints.csv").set_index(["cohort", "variant"])


def test_means_over_folds_and_seeds(made):
    root, rows = made
    brio = rows.loc["demo", "brio"]
    assert brio["status"] == "run" and brio["seeds"] == 2
    assert brio["epochs"] == pytest.approx((12 + 6 + 12 + 3 * 6) / 6)
    assert brio["selected_epoch"] == pytest.approx((6 + 4 + 12 + 3 * 4) / 6)
    assert brio["validation_auc"] == pytest.approx((0.7 + 0.8 + 0.75 + 3 * 0.8) / 6)
    assert brio["validation_around"] == pytest.approx((0.55 + 0.6 + 0.6 + 3 * 0.6) / 6)
    assert brio["validation_luck"] == pytest.approx((0.15 + 0.2 + 0.15 + 3 * 0.2) / 6)
    summary = pd.read_csv(root / "loso.csv").set_index("variant")
    assert brio["auc_mean"] == summary.loc["brio", "auc_mean"]
    line = f"| BRIO | 8.0 | 5.7 | 77.5 | 59.2 | 18.3 | {100 * brio['auc_mean']:.1f} |"
    assert line in (root / "checkpoints.md").read_text().splitlines()


def test_a_path_of_penalties_has_no_epochs(made):
    root, rows = made
    linear = rows.loc["demo", "linear-correlation"]
    empty = ["epochs", "selected_epoch", "validation_around", "validation_luck"]
    assert linear[empty].isna().all() and linear[["validation_auc", "auc_mean"]].notna().all()
    assert "| Linear (correlation) | – | – | " in (root / "checkpoints.md").read_text()


def test_what_was_not_run_says_so_in_the_order_of_the_paper(made):
    root, rows = made
    assert rows.loc[("demo", "gsat"), "status"] == "not run"
    assert rows.loc[("srpbs-aal116", "gin"), "status"] == "not run"
    table = json.loads((root / "checkpoints.json").read_text())
    lines = [[cell["text"] for cell in row["cells"]] for row in table["rows"]]
    assert [line[0] for line in lines] == [
        "demo, unseen sites", "GIN", "GSAT", "BRIO", "Linear (correlation)",
        "srpbs-aal116, unseen sites: not run",
    ]  # fmt: skip
    assert lines[1] == ["GIN", *["not run"] * 6]
    assert table["section"] == "training"


def test_epochs_that_could_not_be_chosen_do_not_count(tmp_path):
    folders = [
        write_trained(tmp_path, "gsat", [WHOLE] * 3, first_epoch=3),
        write_trained(tmp_path, "irm", [WHOLE] * 3, first_epoch=4),
    ]
    done = checkpoint_table(tmp_path, folders)
    assert done.returncode == 0, done.stderr
    around = pd.read_csv(tmp_path / "checkpoints.csv").set_index("variant")["validation_around"]
    assert around["gsat"] == pytest.approx(4.4 / 8)
    assert around["irm"] == pytest.approx(3.9 / 7)


def test_a_run_of_an_older_version_is_named(tmp_path):
    folder = write_trained(tmp_path, "gin", [WHOLE] * 3)
    meta = json.loads((folder / "meta.json").read_text())
    del meta["folds"][1]["first_epoch"]
    (folder / "meta.json").write_text(json.dumps(meta))
    done = checkpoint_table(tmp_path, [folder])
    assert done.returncode == 1 and f"{folder}/meta.json does not say" in done.stderr


def test_a_single_epoch_has_nothing_around_it(tmp_path):
    courses = [([0.6], 1), ([0.6], 1), ([0.7, 0.5], 1)]
    folder = write_trained(tmp_path, "gin", courses, first_epoch=1)
    assert checkpoint_table(tmp_path, [folder]).returncode == 0
    row = pd.read_csv(tmp_path / "checkpoints.csv").iloc[0]
    assert row["validation_around"] == 0.5
    assert row["validation_luck"] == pytest.approx(0.2), "within the fold that has both"


def test_a_history_without_all_epochs_is_named(tmp_path):
    folder = write_trained(tmp_path, "brio", (WHOLE, CUT, LAST))
    history = folder / "history.csv"
    history.write_text("\n".join(history.read_text().splitlines()[:-1]) + "\n")
    done = checkpoint_table(tmp_path, [folder])
    assert done.returncode == 1
    assert f"error: {history} does not have the 12 epochs of fold '{FOLDS[2]}'" in done.stderr
    assert not (tmp_path / "checkpoints.csv").exists()
