"""A page prints one number for each cohort, protocol, variant and measure."""

import json
from pathlib import Path

import pandas as pd
import pytest

from brio_core.reporting.pages.overview import render
from tests.reporting.page import contradictions, printed_numbers
from tests.reporting.standins import (
    DATASET,
    METHODS,
    make_table,
    summarised,
    write_run,
    write_run_config,
)
from tests.reporting.test_figures import draw

pytest.importorskip("jinja2")
RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
MEASURES = {"auc_mean": "AUC", "auc_single": "AUC", "acc_mean": "ACC", "acc_single": "ACC",
            "pooled_auc": "pooled AUC"}  # fmt: skip
PARTS_OF = ("fraction", "by", "share", "group_of_subjects", "arm", "sites")
PARTS = {
    "brio": ("BRIO", "none"),
    "brio-wo-rs": ("BRIO w/o RS", "RS"),
    "brio-wo-tr": ("BRIO w/o TR", "TR"),
}


def write_part(root, variant, seed, label, without):
    folder = write_run(root, variant, seed, method=(label, "Ours", 1.1))
    meta = json.loads((folder / "meta.json").read_text())
    meta |= {"method": "brio", "hyperparameters": {"epochs": 30, "without": without}}
    (folder / "meta.json").write_text(json.dumps(meta))
    return folder


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """Two seeds, both protocols, and the variants of another experiment."""
    root, words = tmp_path_factory.mktemp("page"), {"datasets": {"demo": DATASET}}
    runs = {"loso": [], "id": [], "parts": []}
    for seed in (0, 1):
        runs["parts"] += [write_part(root, name, seed, *PARTS[name]) for name in PARTS]
        # BRIO is in both experiments, as it is in the demo.
        runs["loso"] += [run for run in runs["parts"] if run.match(f"brio/seed-{seed}")]
        runs["loso"] += [write_run(root, name, seed) for name in METHODS if name != "brio"]
        runs["id"] += [write_run(root, name, seed, protocol="id") for name in METHODS]
    summaries, sites = {}, {}
    for key, folders in runs.items():
        summaries[key], sites[key] = summarised(root, folders, key)

    def files(key, *names):
        found = {"summaries": [summaries[key]], "sites": [sites[key]], "runs": runs[key]}
        return {name: found[name] for name in names}

    both = ("summaries", "sites")
    tables = [
        make_table("results", root / "main-loso", **words, **files("loso", *both)),
        make_table("results", root / "main-id", **words, **files("id", *both)),
        make_table("results", root / "ablations", **words, **files("parts", *both)),
        make_table("comparison", root / "comparison", **words, **files("loso", *both)),
        make_table("ensembles", root / "ensembles", **words, **files("loso", "runs")),
        make_table("checkpoints", root / "chosen", **words, **files("loso", *both, "runs")),
    ]
    figures = [
        draw("auc_by_site", root / f"f-{key}", **files(key, *both))[1] for key in ("loso", "id")
    ]
    figures.append(draw("ablations", root / "f-parts", **files("parts", "summaries", "runs"))[1])
    return render(
        tables=[str(path.with_suffix(".json")) for path in tables],
        figures=[str(path) for path in figures],
        summaries=[str(path) for path in summaries.values()],
        sites=[str(path) for path in sites.values()],
        runs=[str(run) for group in runs.values() for run in group],
        config=str(write_run_config(root)),
        **words,
        command="snakemake",
        out=str(root / "index.html"),
    )


def test_a_page_prints_one_number_for_one_thing(page):
    found = printed_numbers(page)
    title = DATASET["title"]
    (places,) = found[title, "unseen sites", "BRIO", "AUC"].values()
    assert {"headline", "figure auc_by_site", "figure ablations"} <= set(places)
    assert sum(one.startswith("table") for one in places) == 5
    assert (title, "sites seen in training", "GCN", "AUC") in found
    assert (title, "unseen sites", "BRIO w/o TR", "ACC") in found
    assert contradictions(page) == []


@pytest.mark.parametrize("place", ["headline", "figure auc_by_site", "table"])
def test_a_second_number_is_found_wherever_it_stands(page, place):
    key = (DATASET["title"], "unseen sites", "BRIO", "AUC")
    (number,) = printed_numbers(page)[key]
    start = {"headline": "BRIO reaches ", "figure auc_by_site": "unseen sites: ", "table": "<td>"}
    spots = [one for one in range(len(page)) if page.startswith(number, one)]
    before = start[place]
    spot = next(one for one in spots if page[:one].rstrip(" \n").endswith(before.rstrip()))
    changed = page[:spot] + "12.3" + page[spot + len(number) :]
    (sentence,) = contradictions(changed)
    assert ", ".join(key) in sentence and "12.3" in sentence


# --- stored pages -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(path.name for path in RESULTS.glob("*.md")))
def test_a_stored_page_prints_one_number_for_one_thing(name):
    text = (RESULTS / name).read_text(encoding="utf-8")
    assert contradictions(text, shares=True) == []
    assert printed_numbers(text), "nothing was read"


def test_a_page_in_markdown_is_read_too():
    text = """
| Method | AUC | ACC |
| --- | ---: | ---: |
| *Ours* |  |  |
| BRIO | **68.5** ± 5.8 | 59.7 ± 4.3 |

ABIDE, unseen sites: 1,033 subjects.

![Means: BRIO, ABIDE, unseen sites: 0.69.](figure.png)

| Method | Seeds | Test AUC |
| --- | ---: | ---: |
| *ABIDE, unseen sites* |  |  |
| BRIO | 5 | 68.5 |
"""
    assert set(printed_numbers(text)["ABIDE", "unseen sites", "BRIO", "AUC"]) == {"68.5", "0.69"}
    assert contradictions(text, shares=True) == [] != contradictions(text)
    (sentence,) = contradictions(text.replace("| 5 | 68.5", "| 5 | 67.5"), shares=True)
    assert sentence.startswith("ABIDE, unseen sites, BRIO, AUC")


@pytest.mark.parametrize("folder", sorted(path.name for path in RESULTS.iterdir() if path.is_dir()))
def test_stored_tables_hold_one_number_for_one_thing(folder):
    found: dict[tuple, dict] = {}
    for path in sorted((RESULTS / folder).glob("*.csv")):
        table = pd.read_csv(path)
        if "variant" not in table:
            continue
        for column in set(MEASURES) & set(table):
            for row in table[table[column].notna()].to_dict("records"):
                # Some tables have parts of scans or subjects too, and not all name their seeds.
                key = (row["cohort"], row.get("protocol"), row["variant"], MEASURES[column])
                key += tuple(row.get(name) for name in (*PARTS_OF, "seeds"))
                found.setdefault(key, {})[path.name] = row[column]
    for key, values in found.items():
        assert max(values.values()) - min(values.values()) < 1e-6, (key, values)
