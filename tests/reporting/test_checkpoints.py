"""The table of checkpoints against sums by hand."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from brio_core.reporting.choices import choices
from brio_core.reporting.table import points
from brio_core.system.errors import BrioError
from tests.reporting.standins import SITES, make_table, summarised, write_course, write_run

FOLDS = SITES[:3]
# AUCs of two validation sites from epoch 1 on; the first two epochs are not eligible. With
# cross-selection the first site is scored where the second is highest and the other way round.
LONG = [0.9, 0.9, 0.7, 0.6, 0.5, 0.8], [0.9, 0.9, 0.5, 0.4, 0.8, 0.7]  # 6 chosen; 0.5 and 0.7
CUT = [0.2, 0.9, 0.6, 0.8], [0.1, 0.9, 0.7, 0.6]  # 4, chosen; 0.6 and 0.6
TIED = [0.1, 0.1, 0.6, 0.6], [0.1, 0.1, 0.5, 0.7]  # 4, chosen; 0.6 and, the first of two, 0.5
METHODS = {
    "gsat": ("GSAT", "Graph OOD methods", 0.7),
    "irm": ("IRM", "General OOD methods", 0.7),
    "gin": ("GIN", "General GNNs", 0.7),
}
WORDS = [{"variant": name, "method": name, "label": METHODS[name][0], "group": METHODS[name][1]}
         for name in ("gin", "gsat")]  # fmt: skip


def write_trained(root, variant, courses, seed=0, first_epoch=3) -> Path:
    words = METHODS.get(variant)
    return write_course(root, variant, courses, seed, first_epoch, {"epochs": 12}, words)


def checkpoint_table(root, folders, pairs=(("demo", "loso"),), variants=(), **entry):
    summary, sites = summarised(root, folders)
    files = {"summaries": [summary], "sites": [sites], "runs": folders}
    planned = {"pairs": pairs, "variants": variants}
    return make_table("checkpoints", root / "checkpoints", entry, planned, **files)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    folders = [
        write_trained(root, "brio", (LONG, CUT, TIED)),
        write_trained(root, "brio", (CUT, CUT, CUT), seed=1),
        write_run(root, "linear-correlation", sites=FOLDS),
    ]
    pairs = (("demo", "loso"), ("srpbs-aal116", "loso"))
    checkpoint_table(root, folders, pairs, WORDS)
    return root, pd.read_csv(root / "checkpoints.csv").set_index(["cohort", "variant"])


def test_means_over_folds_and_seeds(made):
    root, rows = made
    brio = rows.loc["demo", "brio"]
    assert brio["status"] == "run" and brio["seeds"] == 2
    assert brio["epochs"] == pytest.approx((6 + 4 + 4 + 3 * 4) / 6)
    assert brio["selected_epoch"] == pytest.approx((6 + 4 + 4 + 3 * 4) / 6)
    assert brio["validation_auc"] == pytest.approx((0.75 + 0.7 + 0.65 + 3 * 0.7) / 6)
    assert brio["validation_crossed"] == pytest.approx((0.6 + 0.6 + 0.55 + 3 * 0.6) / 6)
    assert brio["validation_luck"] == pytest.approx((0.15 + 0.1 + 0.1 + 3 * 0.1) / 6)
    assert brio["validation_last"] == pytest.approx((0.75 + 0.7 + 0.65 + 3 * 0.7) / 6)
    summary = pd.read_csv(root / "loso.csv").set_index("variant")
    assert brio["auc_mean"] == summary.loc["brio", "auc_mean"]
    line = (
        f"| BRIO | 2 | 4.3 | 4.3 | 70.0 | 59.2 | – | 10.8 | 70.0 | {100 * brio['auc_mean']:.1f} |"
    )
    assert line in (root / "checkpoints.md").read_text().splitlines()


def test_a_path_of_penalties_has_no_epochs(made):
    root, rows = made
    linear = rows.loc["demo", "linear-correlation"]
    empty = ["epochs", "selected_epoch", "validation_last"]
    assert linear[empty].isna().all() and linear[["validation_auc", "auc_mean"]].notna().all()
    assert linear["validation_crossed"] < linear["validation_auc"], "it chooses a penalty"
    assert "| Linear (correlation) | 1 | – | – | " in (root / "checkpoints.md").read_text()


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
    assert lines[1] == ["GIN", *["not run"] * 9]
    assert table["section"] == "training"


def test_differences_are_those_of_the_same_folds_and_seeds(tmp_path):
    # BRIO has 0.6, 0.6, 0.55 and then 0.6 throughout; GSAT 0.6 in the first seed and no second.
    folders = [
        write_trained(tmp_path, "brio", (LONG, CUT, TIED)),
        write_trained(tmp_path, "brio", (CUT, CUT, CUT), seed=1),
        write_trained(tmp_path, "gsat", (CUT, CUT, CUT)),
        write_trained(tmp_path, "irm", (TIED, CUT, TIED)),
        write_trained(tmp_path, "irm", (TIED, CUT, CUT), seed=1),
    ]
    checkpoint_table(tmp_path, folders)
    rows = pd.read_csv(tmp_path / "checkpoints.csv").set_index("variant")
    mean, error = rows["validation_difference"], rows["validation_difference_se"]
    assert mean["gsat"] == pytest.approx(0.05 / 3)
    assert error["gsat"] == pytest.approx(np.std([0, 0, 0.05], ddof=1) / 3**0.5)
    assert mean["irm"] == pytest.approx(-0.05 / 3), "seeds are averaged within a fold"
    assert error["irm"] == pytest.approx(np.std([-0.05, 0, 0], ddof=1) / 3**0.5)
    assert pd.isna(mean["brio"])
    assert " | +1.7 ± 1.7 | " in (tmp_path / "checkpoints.md").read_text()


def test_a_table_may_compare_with_another_variant(tmp_path):
    folders = [
        write_trained(tmp_path, "brio", (LONG, CUT, TIED)),
        write_trained(tmp_path, "gsat", (CUT, CUT, CUT)),
    ]
    checkpoint_table(tmp_path, folders, reference="gsat")
    mean = pd.read_csv(tmp_path / "checkpoints.csv").set_index("variant")["validation_difference"]
    assert mean["brio"] == pytest.approx(-0.05 / 3) and pd.isna(mean["gsat"])
    text = (tmp_path / "checkpoints.md").read_text()
    assert "| Minus GSAT |" in text and "Minus BRIO" not in text


def test_an_exact_fit_is_compared_with_all_seeds(made):
    _, rows = made
    linear, brio = rows.loc["demo", "linear-correlation"], rows.loc["demo", "brio"]
    difference = linear["validation_crossed"] - brio["validation_crossed"]
    assert linear["validation_difference"] == pytest.approx(difference)


def test_epochs_that_could_not_be_chosen_do_not_count(tmp_path):
    folders = [
        write_trained(tmp_path, "gsat", [CUT] * 3, first_epoch=3),
        write_trained(tmp_path, "irm", [CUT] * 3, first_epoch=2),
    ]
    checkpoint_table(tmp_path, folders)
    crossed = pd.read_csv(tmp_path / "checkpoints.csv").set_index("variant")["validation_crossed"]
    assert crossed["gsat"] == pytest.approx(0.6)
    assert crossed["irm"] == pytest.approx(0.9)


def test_a_fold_with_one_usable_validation_site_has_nothing_to_cross(tmp_path):
    single = [0.1, 0.2, 0.9], [None] * 3
    folder = write_trained(tmp_path, "gin", [single, single, CUT])
    checkpoint_table(tmp_path, [folder])
    row = pd.read_csv(tmp_path / "checkpoints.csv").iloc[0]
    assert row["validation_crossed"] == pytest.approx(0.6)
    assert row["validation_luck"] == pytest.approx(0.1), "within the fold that has both"


def test_a_history_without_all_epochs_is_named(tmp_path):
    folder = write_trained(tmp_path, "brio", (LONG, CUT, TIED))
    history = folder / "history.csv"
    history.write_text("\n".join(history.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(BrioError, match=f"{history} does not have the 4 epochs of fold"):
        checkpoint_table(tmp_path, [folder])
    assert not (tmp_path / "checkpoints.csv").exists()


def test_a_difference_that_is_rounded_to_zero_has_no_sign_of_its_own():
    assert points(-0.0004, 0.01) == "+0.0 ± 1.0" and points(np.nan, 0.01) == "–"


def write_variant(root, variant, course, ring=0):
    """A variant of GIN with the same course in every fold but the last, and named sites."""
    folder = write_trained(root, "gin", course)
    meta = json.loads((folder / "meta.json").read_text())
    # In a ring of five sites the first three folds test; the next two sites validate each.
    for place, fold in enumerate(meta["folds"]):
        fold["validation"] = [[SITES[(place + step) % 5]] for step in (1, 2)]
    words = {"variant": variant, "label": variant.upper(), "ring": ring}
    target = folder.parents[1] / variant / f"seed-0-ring-{ring}"
    target.parent.mkdir(exist_ok=True)
    folder.rename(target)
    (target / "meta.json").write_text(json.dumps(meta | words))
    return target


def test_a_choice_among_variants_has_a_nested_counterpart(tmp_path):
    # Only the first fold likes the wide variant, and it likes it so much that all together do.
    good, bad = ([0.5, 0.5, 0.9], [0.5, 0.5, 0.9]), ([0.5, 0.5, 0.6], [0.5, 0.5, 0.6])
    middle = [0.5, 0.5, 0.65], [0.5, 0.5, 0.65]
    folders = [
        write_variant(tmp_path, "gin", (bad, middle, middle)),
        write_variant(tmp_path, "gin-wide", (good, bad, bad)),
    ]
    table = checkpoint_table(tmp_path, folders, reference="gin")
    rows = pd.read_csv(table).set_index("variant")
    sites = pd.read_csv(tmp_path / "loso-sites.csv").set_index(["variant", "fold"])["auc"]
    assert rows.loc["gin-chosen", "auc_mean"] == pytest.approx(sites["gin-wide"].mean())
    # The first site neither validates nor is tested in the folds of the second and third. The
    # second and third site validate the first fold, so they may not listen to it.
    wanted = [sites["gin", SITES[number]] for number in (0, 1, 2)]
    assert rows.loc["gin-nested", "auc_mean"] == pytest.approx(np.mean(wanted))
    text = table.with_suffix(".md").read_text()
    assert "all folds together choose GIN-WIDE" in text and "GIN (3)" in text
    assert text.index("| GIN-WIDE |") < text.index("GIN, of these 2 chosen by all folds |")
    assert rows.loc[["gin-chosen", "gin-nested"], "seeds"].isna().all()


def test_shared_validation_sites_widen_the_error(tmp_path):
    steps = [0.5, 0.5, 0.9]
    flat = [0.5, 0.5, 0.5]
    # The second site of a fold is the first of the next: in both folds the same site gains.
    gains = ((flat, steps), (steps, flat), (flat, flat))
    folders = [
        write_variant(tmp_path, "gin", [(flat, flat)] * 3),
        write_variant(tmp_path, "gin-wide", gains),
    ]
    rows = pd.read_csv(checkpoint_table(tmp_path, folders, reference="gin")).set_index("variant")
    found = rows.loc["gin-wide"]
    assert found["validation_difference"] == pytest.approx(0.4 * 2 / 6)
    alone = np.std([0.2, 0.2, 0.0], ddof=1) / 3**0.5
    assert found["validation_difference_se"] > 1.2 * alone


def test_rings_count_like_seeds(tmp_path):
    folders = [
        write_variant(tmp_path, "gin", (CUT, CUT, CUT)),
        write_variant(tmp_path, "gin", (LONG, CUT, TIED), ring=1),
    ]
    folds = pd.DataFrame([row for folder in folders for row in choices(folder)])
    assert folds["ring"].tolist() == [0] * 3 + [1] * 3
