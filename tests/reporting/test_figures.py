"""Every figure: it is drawn from stand-in results, twice to the same bytes, with its words."""

import csv
import re
import warnings
from functools import cache
from itertools import combinations

import numpy as np
import pandas as pd
import pytest

from brio_core.reporting import plotting
from brio_core.reporting.catalogue import Given, catalogue
from brio_core.reporting.diagnostics import compared, matched, read_diagnostics, with_every_seed
from brio_core.system.errors import BrioError
from tests.programs import run_program
from tests.reporting.diagnosed import DIAGNOSED, write_diagnostics
from tests.reporting.standins import (
    DATASET,
    METHODS,
    summarised,
    write_block_lengths,
    write_cohort,
    write_curve,
    write_profile,
    write_run,
)

DATASETS = {"demo": DATASET}
# A small sweep of BRIO: label, strength and changed hyperparameters.
SWEPT = {
    "brio": ("BRIO", 1.3, {}),
    "brio-wo-rs": ("BRIO w/o RS", 1.1, {"without": "RS"}),
    "brio-wo-tr": ("BRIO w/o TR", 1.0, {"without": "TR"}),
    "brio-k2": ("BRIO (K = 2)", 1.0, {"reestimates": 2}),
    "brio-j8": ("BRIO (J = 8)", 1.2, {"factors": 8}),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for protocol in ("loso", "id"):
        runs = [write_run(root, variant, protocol=protocol) for variant in METHODS]
        summarised(root, runs, protocol)
        write_block_lengths(root, protocol)
    for cohort in ("demo", "other"):
        for variant, (label, effect, change) in SWEPT.items():
            values = {"epochs": 30, "without": "none", "reestimates": 8, "factors": 4} | change
            words = {"method": (label, "Ours", effect), "hyperparameters": values}
            write_run(root / "sweep", variant, cohort_name=cohort, **words)
        summarised(root / "sweep", sorted(root.glob(f"sweep/runs/{cohort}/loso/*/seed-0")), cohort)
        write_diagnostics(root, cohort, placed=cohort == "demo")
    write_cohort(root)
    write_profile(root)
    write_curve(root / "curve")
    return root


def inputs(root, name):
    cohort = root / "cohorts/demo"
    diagnostics = {"diagnostics": sorted(root.glob("diagnostics/*/loso/*/seed-0"))}
    sweep = {
        "summaries": [root / f"sweep/{name}.csv" for name in ("demo", "other")],
        "runs": sorted(root.glob("sweep/runs/*/loso/*/seed-0")),
    }
    return {
        "auc_by_site": {
            "summaries": [root / "loso.csv", root / "id.csv"],
            "sites": [root / "loso-sites.csv", root / "id-sites.csv"],
        },
        "cohort": {
            "inclusion": [cohort / "inclusion.tsv"],
            "participants": [cohort / "participants.tsv"],
        },
        "training": {"runs": sorted(root.glob("runs/demo/*/*/seed-0"))},
        "diagnostics": {"diagnostics": diagnostics["diagnostics"][: len(DIAGNOSED)]},
        "propositions": diagnostics,
        "roi_profile": diagnostics,
        "scan_length": diagnostics,
        "method": {},
        "ablations": sweep,
        "sensitivity": sweep,
        "sites": {"profiles": [cohort / "site_profile.tsv"]},
        "learning_curve": {
            "sites": sorted(root.glob("curve/*-sites.csv")),
            "runs": sorted(root.glob("curve/runs/*/*/*/seed-0")),
        },
        "abstention": diagnostics,
        "block_length": {"block_lengths": sorted(root.glob("blocklength/demo/*.json"))},
    }[name]


def draw(name, prefix, **files):
    paths = {key: [str(path) for path in found] for key, found in files.items()}
    given = Given(catalogue("figures")[name], paths, datasets=DATASETS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plotting.save(given.make(), given, prefix)
    return prefix.with_suffix(".pdf"), prefix.with_suffix(".png")


@pytest.fixture(scope="module")
def drawn(results, tmp_path_factory):
    """``drawn(name)`` are the PDF and the PNG of a figure, which is drawn once."""
    folder = tmp_path_factory.mktemp("drawn")
    return cache(lambda name: draw(name, folder / name, **inputs(results, name)))


@pytest.mark.parametrize("name", catalogue("figures"))
def test_figure_is_drawn_to_the_same_bytes(results, drawn, tmp_path, name):
    image = pytest.importorskip("PIL.Image")
    first = drawn(name)
    # What was drawn before must not matter.
    draw(name, tmp_path / name, **inputs(results, name))
    for one in (*first, first[0].with_suffix(".svg")):
        assert one.read_bytes() == (tmp_path / one.name).read_bytes()
    svg = first[0].with_suffix(".svg").read_text()
    assert svg.startswith("<svg") and "<metadata" not in svg and "font-face" not in svg
    pdf = first[0].read_bytes()
    assert b"/FontFile2" in pdf and b"CreationDate" not in pdf and b"/Type3" not in pdf
    with image.open(first[1]) as png:
        assert set(png.text) == {"Title", "Description", "Comment", "Section"}
        assert all(png.text.values()) and len(png.text["Comment"]) > 40
        assert 1000 <= png.width <= 1700, "readable at the width of a page"
        assert len(png.convert("L").getcolors(256)) > 20, "not blank"


def test_alternative_text_holds_the_numbers(results, drawn):
    image = pytest.importorskip("PIL.Image")
    _, png = drawn("auc_by_site")
    header, first = (results / "loso.csv").read_text().splitlines()[:2]
    row = dict(zip(header.split(","), first.split(",")))
    with image.open(png) as picture:
        text = picture.text["Comment"]
    expected = (
        f"{row['label']}, {DATASET['title']}, unseen sites: {100 * float(row['auc_mean']):.1f}"
    )
    assert expected in text


def test_diagnostics_of_methods_without_factors(tmp_path):
    """Without BRIO the scatter is still drawn; figures about factors say what is missing."""
    (folder,) = write_diagnostics(tmp_path, diagnosed={"gcn": DIAGNOSED["gcn"]})
    _, png = draw("diagnostics", tmp_path / "figure", diagnostics=[folder])
    with pytest.importorskip("PIL.Image").open(png) as picture:
        assert "BRIO was not run" in picture.text["Comment"]
    for name in ("propositions", "roi_profile", "scan_length"):
        with pytest.raises(BrioError, match="no diagnostics of BRIO"):
            draw(name, tmp_path / name, diagnostics=[folder])
        assert not (tmp_path / f"{name}.png").exists()


def test_a_folder_without_diagnostics_is_named(tmp_path):
    result = run_program(
        "figure",
        "diagnostics",
        "--diagnostics",
        tmp_path / "nothing",
        "--out-prefix",
        tmp_path / "x",
    )
    assert result.returncode == 1
    assert re.fullmatch(r"error: .*nothing.*does not exist.*\n", result.stderr)


def test_numbers_of_the_diagnostics_figure_equal_a_recomputation(results, drawn):
    """Spearman's rho, discordant pairs, mismatches and retention, counted again from the files."""
    stats = pytest.importorskip("scipy.stats")
    folders = sorted(results.glob("diagnostics/demo/loso/*/seed-0"))
    rows = [row for one in folders for row in csv.DictReader((one / "folds.csv").open())]
    shown = [r for r in rows if r["variant"] in ("gcn", "brio", "brio-wo-qg-lambda0")]
    x, y = ([float(r[k]) for r in shown] for k in ("site_discrepancy", "predictive_variation"))
    wrong = total = 0
    for one, other in combinations(range(len(shown)), 2):
        if shown[one]["fold"] == shown[other]["fold"]:
            total += 1
            wrong += (x[one] < x[other]) != (y[one] < y[other])
    swept = [r for r in rows if r["variant"] not in ("gcn", "brio-wo-rs")]
    x_all, y_all = (np.array([float(r[k]) for r in swept])
                    for k in ("site_discrepancy", "predictive_variation"))  # fmt: skip
    plain = {r["fold"]: float(r["validation_auc"]) for r in swept
             if r["variant"] == "brio-wo-qg-lambda0"}  # fmt: skip
    mismatch = (x_all < np.median(x_all)) & (y_all > np.median(y_all))
    kept = [float(r["validation_auc"]) >= plain[r["fold"]] - 0.02 for r in swept]
    own = np.array([r["variant"] == "brio" for r in swept])
    _, png = drawn("diagnostics")
    with pytest.importorskip("PIL.Image").open(png) as picture:
        text = picture.text["Comment"]
    rho = stats.spearmanr(x, y).statistic
    assert f"all methods: Spearman's ρ = {rho:.2f}, ".replace("-", "−") in text
    assert f"discordant pairs {100 * wrong / total:.0f} %" in text
    rates = [100 * (mismatch & flag)[own].mean() for flag in (np.ones(len(own), bool), kept)]
    assert f"BRIO {rates[0]:.0f} % and {rates[1]:.0f} %" in text
    assert re.search(r"Full qualification [\d., ]*0.750;", text), "all factors: the original AUC"


def at_seed(folder, seed):
    """Say that a diagnosed run has another seed."""
    folds = pd.read_csv(folder / "folds.csv")
    folds.assign(seed=seed).to_csv(folder / "folds.csv", index=False)


def test_linear_models_are_compared_with_every_seed(tmp_path):
    linear = ("linear-correlation", "Linear (correlation)", "Linear", {})
    networks = {name: DIAGNOSED["gcn"] for name in ("gcn", "gin")}
    folders = write_diagnostics(tmp_path, diagnosed={"linear-correlation": linear} | networks)
    at_seed(folders[1], 1)
    at_seed(folders[2], 2)
    (one,) = read_diagnostics(folders)
    one.variants["gin"]["method"] = "gin"
    runs = compared(one)
    found = with_every_seed(one, runs).groupby("variant")
    assert found["seed"].unique().map(list).to_dict() == {
        "linear-correlation": ["1", "2"], "gcn": ["1"], "gin": ["2"],
    }  # fmt: skip
    alone = runs[runs["variant"] == "linear-correlation"]
    assert with_every_seed(one, alone).equals(alone), "nothing that has a seed"


def test_a_variant_that_shares_no_seed_with_the_reference_has_no_rate(tmp_path):
    folders = write_diagnostics(tmp_path)
    at_seed(next(one for one in folders if one.parent.name == "brio"), 1)
    _, png = draw("diagnostics", tmp_path / "figure", diagnostics=folders)
    with pytest.importorskip("PIL.Image").open(png) as picture:
        rates = picture.text["Comment"].split("mismatch rates: ")[1].split("%. ")[0]
    assert "λ = 1" in rates and "BRIO" not in rates


def test_matched_setting_is_chosen_by_validation_among_positive_strengths(results):
    folders = sorted(results.glob("diagnostics/demo/loso/*/seed-0"))
    rows = [row for one in folders for row in csv.DictReader((one / "folds.csv").open())]
    means = {
        name: np.mean([float(r["validation_auc"]) for r in rows if r["variant"] == name])
        for name in ("brio-wo-qg-lambda0.3", "brio-wo-qg-lambda1")
    }
    assert matched(*read_diagnostics(folders)) == max(means, key=means.get)


@pytest.mark.parametrize(("weakest", "scale"), [(0.3, "linear"), (0.001, "log")])
def test_axis_fits_how_far_sites_come_together(results, monkeypatch, weakest, scale):
    from brio_core.reporting import diagnostics as stored
    from brio_core.reporting.figures import diagnostics

    folders = sorted(results.glob("diagnostics/demo/loso/*/seed-0"))
    (one,) = read_diagnostics(folders)
    names, runs = stored.sweep_runs(one)
    agreement = np.geomspace(0.4, weakest, len(names))
    runs = runs.assign(site_discrepancy=runs["variant"].map(dict(zip(names, agreement))))
    monkeypatch.setattr(stored, "sweep_runs", lambda one: (names, runs))
    _, axes = plotting.new_figure(3, 2, 1, 1)
    axis = axes.flat[0]
    diagnostics._sweep(axis, one)
    assert axis.get_xscale() == scale
    assert [text.get_text() for text in axis.texts] == list(names.values())
    axis.figure.canvas.draw()
    numbers = [text.get_text() for text in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    assert not [text for text in numbers if "$" in text], "formulas are not set as such"


def test_a_sweep_changes_one_setting_at_a_time():
    from brio_core.reporting.figures.brio import sweep

    base = {"reestimates": 8, "factors": 4}
    values = {"brio": base, "k": base | {"reestimates": 2}, "j": base | {"factors": 2}}
    rows = pd.DataFrame({"variant": ["brio", "j", "k"], "auc_mean": [0.7, 0.6, 0.5]})
    assert sweep(rows, values, "reestimates")["auc_mean"].to_dict() == {2: 0.5, 8: 0.7}
    assert sweep(rows, values, "factors")["auc_mean"].to_dict() == {2: 0.6, 4: 0.7}


def test_circles_of_the_main_figure_tell_their_site(results, drawn):
    pdf, _ = drawn("auc_by_site")
    svg = pdf.with_suffix(".svg").read_text()
    rows = [*csv.DictReader((results / "loso-sites.csv").open())]
    rows += csv.DictReader((results / "id-sites.csv").open())
    titles = re.findall(r"<title>([^<]+): (\d+) subjects, AUC ([\d.]+) \[", svg)
    told = [(row["fold"], row["n"], f"{100 * float(row['auc']):.1f}") for row in rows]
    assert sorted(titles) == sorted(told)
