"""Every figure: it is drawn from stand-in results, twice to the same bytes, with its words."""

import json
import re
import runpy

import pytest

from tests.scripts.standins import (
    DATASET,
    METHODS,
    ROOT,
    run_program,
    write_block_lengths,
    write_cohort,
    write_diagnostics,
    write_run,
)

DATASETS = json.dumps({"demo": DATASET})
NAMES = ("auc_by_site", "cohort", "training", "diagnostics", "block_length")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    root = tmp_path_factory.mktemp("results")
    for protocol in ("loso", "id"):
        runs = [write_run(root, variant, protocol=protocol) for variant in METHODS]
        result = run_program(
            "summarise", "--runs", *runs, "--experiment", "main",
            "--out", root / f"{protocol}.csv", "--sites", root / f"{protocol}.sites.csv",
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        write_block_lengths(root, protocol)
    for variant in METHODS:
        write_diagnostics(root, variant)
    write_cohort(root)
    return root


def inputs(root, name):
    summaries = ["--summaries", root / "loso.csv", root / "id.csv"]
    cohort = root / "cohorts/demo"
    return {
        "auc_by_site": [*summaries, "--sites", root / "loso.sites.csv", root / "id.sites.csv"],
        "cohort": ["--inclusion", cohort / "inclusion.tsv",
                   "--participants", cohort / "participants.tsv"],
        "training": ["--runs", *sorted(root.glob("runs/demo/*/*/seed-0"))],
        "diagnostics": ["--diagnostics", *sorted(root.glob("diagnostics/demo/loso/*/*.csv")),
                        *summaries],
        "block_length": ["--block-lengths", *sorted(root.glob("blocklength/demo/*.json"))],
    }[name]  # fmt: skip


def draw(root, name, prefix):
    arguments = [*inputs(root, name), "--datasets", DATASETS, "--out-prefix", prefix]
    result = run_program(f"figures/{name}", *arguments)
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", "no warnings"
    return prefix.with_suffix(".pdf"), prefix.with_suffix(".png")


@pytest.mark.parametrize("name", NAMES)
def test_figure_is_drawn_to_the_same_bytes(results, tmp_path, monkeypatch, name):
    image = pytest.importorskip("PIL.Image")
    first = draw(results, name, tmp_path / "first")
    # Once more, in this process: what was drawn before must not matter either.
    arguments = [*inputs(results, name), "--datasets", DATASETS, "--out-prefix", tmp_path / "again"]
    monkeypatch.setattr("sys.argv", [name, *map(str, arguments)])
    runpy.run_path(str(ROOT / "scripts" / "figures" / f"{name}.py"), run_name="__main__")
    for one in first:
        assert one.read_bytes() == one.with_stem("again").read_bytes()
    pdf = first[0].read_bytes()
    assert b"/FontFile2" in pdf and b"CreationDate" not in pdf and b"/Type3" not in pdf
    with image.open(first[1]) as png:
        assert set(png.text) == {"Title", "Description", "Comment", "Section"}
        assert all(png.text.values()) and len(png.text["Comment"]) > 40
        assert 1000 <= png.width <= 1700, "readable at the width of a page"
        assert len(png.convert("L").getcolors(256)) > 20, "not blank"


def test_alternative_text_holds_the_numbers(results, tmp_path):
    image = pytest.importorskip("PIL.Image")
    _, png = draw(results, "auc_by_site", tmp_path / "figure")
    header, first = (results / "loso.csv").read_text().splitlines()[:2]
    row = dict(zip(header.split(","), first.split(",")))
    with image.open(png) as picture:
        text = picture.text["Comment"]
    expected = f"{row['label']}, {DATASET['title']}, unseen sites: {float(row['auc_mean']):.2f}"
    assert expected in text


def test_unknown_variant_of_a_diagnostics_file_is_named(results, tmp_path):
    path = write_diagnostics(tmp_path, "mystery")
    result = run_program(
        "figures/diagnostics", "--diagnostics", path, "--summaries", results / "loso.csv",
        "--out-prefix", tmp_path / "figure",
    )  # fmt: skip
    assert result.returncode == 1
    assert re.fullmatch(r"error: .*mystery.*\n", result.stderr)
    assert not (tmp_path / "figure.png").exists()


def test_groups_keep_their_colour_and_methods_differ_in_a_group():
    plotting = pytest.importorskip("brio_core.reporting.plotting")
    from brio_core.reporting.results import GROUPS

    colours = [plotting.group_colour(group) for group in (*GROUPS, "unheard of")]
    assert len(set(colours)) == len(colours)
    brain = ("brainnettf", "xg-gnn", "agmgc", "fc-hgnn", "brainood", "deci", "core")
    shapes = plotting.markers((method, method, "Brain network methods") for method in brain)
    assert len(set(shapes.values())) == len(brain)
