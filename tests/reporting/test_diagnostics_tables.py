"""Tables made of diagnostics equal a recomputation from the files, and say what was not run."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest

from brio_core.system.seeds import numpy_generator
from tests.reporting.diagnosed import DIAGNOSED, write_diagnostics
from tests.reporting.standins import DATASET, make_table

PLANNED = {"pairs": [["demo", "loso"], ["absent", "loso"]]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return write_diagnostics(tmp_path_factory.mktemp("results"))


def make(name, folders, prefix, planned=PLANNED):
    datasets = {"demo": DATASET}
    make_table(name, prefix, planned=planned, datasets=datasets, diagnostics=folders)
    table = json.loads(prefix.with_suffix(".json").read_text())
    assert table["section"] == "diagnostics"
    assert any("not run" in row["cells"][0]["text"] for row in table["rows"])
    assert prefix.with_suffix(".tex").read_text().isascii(), "pdflatex knows no other minus"
    return read(prefix.with_suffix(".csv")), table


def read(*paths):
    return [row for path in paths for row in csv.DictReader(path.open(encoding="utf-8"))]


def test_scan_length_equals_a_recomputation(folders, tmp_path):
    rows, table = make("scan_length", folders, tmp_path / "table")
    cells, cut = (
        read(*(one / f"{name}.csv" for one in folders)) for name in ("folds", "scan-length")
    )
    whole = {(r["variant"], r["fold"]): float(r["test_auc"]) for r in cells}
    for row in rows:
        folds = sorted({fold for variant, fold in whole if variant == row["variant"]})
        changes = []
        for fold in folds:
            key, fraction = (row["variant"], fold), float(row["fraction"])
            parts = [float(r["test_auc"]) for r in cut if (r["variant"], r["fold"]) == key
                     and float(r["fraction"]) == fraction]  # fmt: skip
            assert len(parts) == (0 if fraction == 1 else 3)
            changes.append((np.mean(parts) if parts else whole[key]) - whole[key])
        assert float(row["change_mean"]) == pytest.approx(np.mean(changes))
        error = np.std(changes, ddof=1) / np.sqrt(len(changes))
        assert float(row["change_se"]) == pytest.approx(error)
        full = np.mean([whole[row["variant"], fold] for fold in folds])
        assert float(row["auc_mean"]) == pytest.approx(full + np.mean(changes))
    assert [row["fraction"] for row in rows[:3]] == ["1.0", "0.75", "0.5"]
    assert table["columns"] == ["Method", "Whole scan", "75 %", "50 %"]


def test_stability_equals_a_recomputation(folders, tmp_path):
    """Rank correlations are over methods alone, of which two have the same numbers."""
    more = write_diagnostics(tmp_path, diagnosed={
        name: (name, name.upper(), "General GNNs", {}) for name in ("gat", "gin")
    })  # fmt: skip
    stats = pytest.importorskip("scipy.stats")
    folders = [*folders, *more]
    rows, table = make("stability", folders, tmp_path / "table")
    means = {}
    for folder in folders:
        cells = read(folder / "folds.csv")
        names = ("site_discrepancy", "predictive_variation", "test_auc")
        means[folder.parent.name] = [np.mean([float(r[name]) for r in cells]) for name in names]
    for row in rows:
        found = [
            float(row[key]) for key in ("site_discrepancy", "predictive_variation", "auc_mean")
        ]
        assert found == pytest.approx(means[row["variant"]])
    # In the order of the paper.
    methods = np.array([means[name] for name in ("gcn", "gat", "gin", "brio")])
    draws = numpy_generator("methods", "demo", "", 4).integers(0, 4, (4, 2000))
    for column, measure in enumerate(("discrepancy", "variation")):
        expected = stats.spearmanr(methods[:, column], methods[:, 2]).statistic
        low, value, high = (float(rows[0][f"{measure}_rho{end}"]) for end in ("_low", "", "_high"))
        assert value == pytest.approx(expected) and -1 <= low <= value <= high <= 1
        drawn = [methods[draws[:, number]] for number in range(2000)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of draws that hold one method alone
            again = [stats.spearmanr(one[:, column], one[:, 2]).statistic for one in drawn]
        assert (low, high) == pytest.approx(tuple(np.nanquantile(again, [0.025, 0.975])))
    expected = stats.spearmanr(methods[:, 1], methods[:, 0]).statistic
    assert float(rows[0]["variation_discrepancy_rho"]) == pytest.approx(expected)
    assert float(rows[0]["held_out_discrepancy_rho"]) == pytest.approx(expected), "1.5 times"
    assert {row["methods"] for row in rows} == {"4"}
    last = table["rows"][len(rows) + 1]["cells"]
    assert last[0]["text"] == "Rank correlation with AUC, all 4 methods"
    assert {row["paper_methods"] for row in rows} == {"2"}, "too few to correlate"


def test_every_number_of_the_panels_is_in_the_table(folders, tmp_path):
    """With the medians of the sweep, as the figure has them, and with those of all methods."""
    prefix = tmp_path / "panels"
    make_table("panels", prefix, {"margin": 0.05}, diagnostics=folders)
    found = {(r["panel"], r["of"], r["quantity"]): r for r in read(prefix.with_suffix(".csv"))}
    rows = [row for folder in folders for row in read(folder / "folds.csv")]
    axes = ("site_discrepancy", "predictive_variation")

    def values(wanted):
        return np.array([[float(r[axis]) for axis in axes] for r in rows if wanted(r["variant"])])

    for panel, label in (("a", "BRIO w/o QG (λ = 0)"), ("b", "λ = 0")):
        mean = values("brio-wo-qg-lambda0".__eq__).mean(0)
        numbers = [found[panel, label, axis.replace("_", " ")]["value"] for axis in axes]
        assert [float(one) for one in numbers] == pytest.approx(mean)
    error = values("brio".__eq__)[:, 1].std(ddof=1) / 7**0.5
    assert float(found["b", "BRIO", "predictive variation"]["error"]) == pytest.approx(error)
    plain = {
        r["fold"]: float(r["validation_auc"]) for r in rows if r["variant"] == "brio-wo-qg-lambda0"
    }
    swept = lambda name: name not in ("gcn", "brio-wo-rs")  # noqa: E731
    across = lambda name: name in ("gcn", "brio", "brio-wo-qg-lambda0")  # noqa: E731
    for of, medians in ((swept, "the sweep"), (across, "all methods")):
        middle = np.median(values(of), axis=0)
        own = [r for r in rows if r["variant"] == "brio"]
        wrong = [float(r[axes[0]]) < middle[0] and float(r[axes[1]]) > middle[1] for r in own]
        kept = [float(r["validation_auc"]) >= plain[r["fold"]] - 0.05 for r in own]
        rate = found["c", "BRIO", f"mismatches, medians of {medians}"]["value"]
        assert float(rate) == pytest.approx(np.mean(wrong))
        rate = found["c", "BRIO", f"mismatches that keep AUC, medians of {medians}"]["value"]
        assert float(rate) == pytest.approx(np.mean(np.array(wrong) & kept))
    (brio,) = [one for one in folders if one.parent.name == "brio"]
    kept = [
        r for r in read(brio / "retention.csv") if r["ranking"] == "support" and r["kept"] == "1"
    ]
    auc = np.mean([float(r["test_auc"]) for r in kept])
    share = 100 * int(kept[0]["kept"]) / int(kept[0]["factors"])
    row = found["d", "support", f"AUC, {share:g} % of factors"]
    assert float(row["value"]) == pytest.approx(auc) and row["low"] == ""
    assert found["d", "random", f"AUC, {share:g} % of factors"]["low"] != ""


@pytest.mark.parametrize("names", [["gcn"], ["gcn", "brio"], ["gcn", "brio-wo-qg-lambda1"]])
def test_panels_without_a_sweep_have_the_other_numbers(tmp_path, names):
    folders = write_diagnostics(tmp_path, diagnosed={name: DIAGNOSED[name] for name in names})
    rows = read(make_table("panels", tmp_path / "panels", diagnostics=folders))
    assert {row["of"] for row in rows if row["panel"] == "a"} >= {"GCN"}
    assert not any(row["panel"] == "c" for row in rows)
    assert any(row["panel"] == "d" for row in rows) == ("brio" in names)


@pytest.mark.parametrize("name", ["stability", "scan_length"])
def test_a_planned_method_that_was_not_run_says_so(folders, tmp_path, name):
    gat = {"variant": "gat", "method": "gat", "label": "GAT", "group": "General GNNs"}
    planned = PLANNED | {"variants": [gat]}
    _, table = make(name, folders, tmp_path / "table", planned)
    shown = [[cell["text"] for cell in row["cells"]] for row in table["rows"]]
    names = [row[0] for row in shown]
    assert shown[names.index("GAT")][1:3] == ["not run"] * 2
    assert names.index("GCN") < names.index("GAT") < names.index("BRIO"), "in its place"


def test_few_methods_have_no_rank_correlation(folders, tmp_path):
    rows, table = make("stability", folders, tmp_path / "table")
    assert {row["methods"] for row in rows} == {"2"} and "variation_rho" not in rows[0]
    assert not any("Rank" in row["cells"][0]["text"] for row in table["rows"])


def test_roi_profiles_are_averaged_over_models(folders, tmp_path):
    rows, table = make("roi_profiles", folders, tmp_path / "table")
    scores = {}
    (brio,) = [one for one in folders if one.parent.name == "brio"]
    for row in read(brio / "profiles.csv"):
        scores.setdefault(int(row["roi"]), []).append(float(row["score"]))
    means = {roi: np.mean(values) for roi, values in scores.items()}
    assert [int(row["roi"]) for row in rows] == sorted(means, key=means.get, reverse=True)
    assert sum(float(row["score"]) for row in rows) == pytest.approx(1)
    for row in rows:
        roi = int(row["roi"])
        assert float(row["score"]) == pytest.approx(means[roi])
        assert float(row["times_uniform"]) == pytest.approx(24 * means[roi])
        assert float(row["score_sd"]) == pytest.approx(np.std(scores[roi], ddof=1))
        assert row["name"] == f"Region {roi}"
    named = [row["cells"][1]["text"] for row in table["rows"] if len(row["cells"]) == 4]
    assert named[:5] == [row["name"] for row in rows[:5]]


def test_no_minus_stands_before_a_zero(tmp_path):
    folders = write_diagnostics(tmp_path)
    for one in folders:
        pd.read_csv(one / "rois.csv").assign(z=-0.2).to_csv(one / "rois.csv", index=False)
    _, table = make("roi_profiles", folders, tmp_path / "table")
    places = [row["cells"][2]["text"] for row in table["rows"] if len(row["cells"]) == 4]
    assert places and all(place.endswith(", 0") for place in places)


def test_a_method_that_needs_long_scans_has_gaps(tmp_path):
    folders = write_diagnostics(tmp_path)
    (gcn,) = [one for one in folders if one.parent.name == "gcn"]
    path = gcn / "scan-length.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if ",0.5," not in line))
    rows, table = make("scan_length", folders, tmp_path / "table")
    assert [row["fraction"] for row in rows if row["variant"] == "gcn"] == ["1.0", "0.75"]
    shown = next(row for row in table["rows"] if row["cells"][0]["text"] == "GCN")
    assert shown["cells"][3]["text"] == "–"
    for one in folders:
        (one / "scan-length.csv").unlink()
    rows, _ = make("scan_length", folders, tmp_path / "table")
    assert {row["fraction"] for row in rows} == {"1.0"}, "no method could read shorter scans"


def test_abstention_equals_a_recomputation_and_says_whether_stability_adds_anything(
    folders, tmp_path
):
    rows, table = make("abstention", folders, tmp_path / "table")
    people = read(*(one / "held-out.csv" for one in folders))
    keys = {"stability": lambda one: (-float(one["agreement"]), float(one["deviation"])),
            "probability": lambda one: -abs(float(one["margin"]))}  # fmt: skip
    for row in rows:
        hits = []
        for site in sorted({one["fold"] for one in people}):
            own = [r for r in people if (r["variant"], r["fold"]) == (row["variant"], site)]
            own.sort(key=keys[row["by"]])
            kept = own[: round(float(row["share"]) * len(own))]
            hits.append(np.mean([(float(r["margin"]) > 0) == (r["label"] == "1") for r in kept]))
        assert float(row["accuracy_mean"]) == pytest.approx(np.mean(hits))
    assert len(rows) == 2 * 6 * len(DIAGNOSED)
    (note,) = [text for text in table["notes"] if "by stability compared" in text]
    better = sum(row["verdict"] == "better" for row in rows)
    assert ("No method shows" in note) == (better == 0)
