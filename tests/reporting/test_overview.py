"""The overview page: complete, self-contained, escaped, and honest about who wins."""

import base64
import hashlib
import html
import json
import re
import subprocess
import sys
from functools import partial
from html.parser import HTMLParser
from urllib.parse import unquote_to_bytes

import pandas as pd
import pytest

from brio_core.reporting.catalogue import SECTIONS
from brio_core.reporting.pages.items import Item, sections
from brio_core.reporting.pages.overview import changed_hyperparameters
from brio_core.reporting.table import Cell, Row, Table
from brio_core.reporting.writing import write_table
from tests.programs import run_program
from tests.reporting.standins import (
    DATASET,
    METHODS,
    ROOT,
    write_cohort,
    write_run,
    write_run_config,
)

pytest.importorskip("jinja2")
EVIL = "<script>alert(1)</script>"
# One of the eleven tables has nothing to show.
TABLES, SHOWN = 11, 10
VOID = {"meta", "img", "br", "link", "input", "hr"}


def make_page(root, sites, title):
    """Everything from runs to the page, with the programs a user would run."""
    datasets = json.dumps({"demo": DATASET | {"title": title}})
    folder = write_cohort(root, sites=sites)
    cohort = ("--inclusion", folder / "inclusion.tsv",
              "--participants", folder / "participants.tsv", "--datasets", datasets)  # fmt: skip
    summaries, cells = [], []
    for protocol in ("loso", "id", "loso-permuted-1"):
        runs = [
            write_run(root, variant, protocol=protocol, sites=sites, notes=[f"Said of {variant}."])
            for variant in METHODS
        ]
        summaries.append(root / f"{protocol}.csv")
        cells.append(root / f"{protocol}.runs.json")
        ok(
            "summarise", "--runs", *runs, "--experiment", "main", "--out", summaries[-1],
            "--sites", root / f"{protocol}.sites.csv", "--records", cells[-1],
        )  # fmt: skip
        entry = json.dumps({"title": f"Table of {protocol}", "caption": "Caption."})
        ok(
            "table", *(["permuted"] if "permuted" in protocol else ["results", "--sites"]),
            "--summaries", summaries[-1], "--entry", entry, "--datasets", datasets,
            "--out-prefix", root / "tables" / protocol,
        )  # fmt: skip
    entry = ("--entry", json.dumps({"title": "Title", "caption": "Caption."}))
    sites, named = ("--sites", root / "loso.sites.csv"), ("--datasets", datasets)
    first = ("--summaries", summaries[0])
    table = partial(ok, "table")
    table("comparison", *first, *sites, *entry, *named, "--out-prefix", root / "tables/test")
    table("site_scores", *sites, *entry, *named, "--out-prefix", root / "tables/site-scores")
    table("efficiency", *first, *entry, *named, "--out-prefix", root / "tables/efficiency")
    empty = ("--block-lengths", "--inclusion", "--participants")
    prefix = root / "tables/paper_vs_ours"
    table("paper_vs_ours", *first, *empty, *named, "--out-prefix", prefix)
    methods = [ROOT / f"config/methods/{name}.yaml" for name in ("brio", "gcn")]
    config = write_run_config(root, overrides={"all": {"optimiser": EVIL}})
    files = ("--config", config, "--methods", *methods)
    table("settings", *files, "--out-prefix", root / "tables/settings")
    others = ("--entry", json.dumps({"other_methods": True}))
    table("settings", *files, *others, "--out-prefix", root / "tables/settings-others")
    table("cohorts", *cohort, "--out-prefix", root / "tables/cohort")
    ok("figure", "cohort", *cohort, "--out-prefix", root / "figures/cohort")
    ok(
        "figure", "auc_by_site", "--summaries", *summaries[:2], "--sites",
        root / "loso.sites.csv", root / "id.sites.csv", "--datasets", datasets,
        "--out-prefix", root / "figures/sites",
    )  # fmt: skip
    names = Row((Cell(f"subject {EVIL}"), Cell(f"region {EVIL}")))
    planted = Table("Names", "Of data.", ("Subject", "Region"), (names,))
    write_table(root / "tables/names", pd.DataFrame({"subject": [EVIL]}), planted)
    arguments = (
        "--tables", *sorted(root.glob("tables/*.json")), "--figures",
        *sorted(root.glob("figures/*.png")), "--summaries", *summaries, "--sites",
        root / "loso.sites.csv", root / "id.sites.csv", "--config", config, "--datasets", datasets,
    )  # fmt: skip
    ok("overview", *arguments, "--runs", *cells, "--out", root / "index.html")
    return arguments


def ok(*command):
    result = run_program(*command)
    assert result.returncode == 0, result.stderr


class Outline(HTMLParser):
    """Checks nesting and gathers tags with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.stack, self.tags = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag, f"unbalanced {tag}"

    def find(self, name):
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Names that come from data are hostile throughout."""
    root = tmp_path_factory.mktemp("results")
    sites = (f"A{EVIL}", "B & C", 'D"onmouseover="x', "Elm", "{{ 7 * 7 }}", "Hazel", "Maple")
    return root, make_page(root, sites, f"Demo {EVIL}")


@pytest.fixture(scope="module")
def page(results):
    return (results[0] / "index.html").read_text()


def test_page_is_well_formed_and_accessible(page):
    outline = Outline(page)
    assert outline.stack == []
    assert outline.find("html")[0]["lang"] == "en"
    assert len(outline.find("h1")) == 1 and len(outline.find("main")) == 1
    pictures = [one for _, one in outline.tags if one.get("role") == "img"]
    assert len(pictures) == len(outline.find("svg")) == 2
    assert all(len(one["aria-label"]) > 20 for one in pictures)
    assert len(outline.find("table")) == SHOWN + 1, "and the map of sites"
    identifiers = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(identifiers) == len(set(identifiers))
    targets = [link["href"][1:] for link in outline.find("a") if link["href"][0] == "#"]
    assert targets and set(targets) <= set(identifiers)


def test_page_needs_nothing_from_outside(page):
    outline = Outline(page)
    assert not outline.find("link") and not outline.find("iframe") and not outline.find("img")
    script = re.fullmatch(r".*<script>(.*?)</script>.*", page, flags=re.S)[1]
    seal = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = outline.find("meta")[2]["content"]
    assert policy.endswith(f"; script-src 'sha256-{seal}'") and policy.startswith(
        "default-src 'none'"
    )
    page = page.replace("http://www.w3.org/2000/svg", "")
    assert "http://" not in page and "https://" not in page and "@import" not in page
    assert "prefers-color-scheme: dark" in page and "width=device-width" in page


def test_names_from_data_are_escaped(page):
    assert page.count("<script") == 1
    for planted in (f"A{EVIL}", f"subject {EVIL}", f"region {EVIL}"):
        assert html.escape(planted) in page
    assert "B &amp; C" in page and "{{ 7 * 7 }}" in page
    handlers = [name for _, attributes in Outline(page).tags for name in attributes]
    assert not [name for name in handlers if name.startswith("on")]


def test_downloads_are_the_files_and_a_mailed_page_has_no_dead_link(results, page):
    links = [link for link in Outline(page).find("a") if link["href"][0] != "#"]
    assert len(links) == SHOWN * 2 + 2
    for link in links:
        folder = "figures" if link["download"].endswith(".pdf") else "tables"
        about, _, data = link["href"].partition(",")
        data = base64.b64decode(data) if about.endswith("base64") else unquote_to_bytes(data)
        assert data == (results[0] / folder / link["download"]).read_bytes()


def test_notes_of_several_tables_stand_once(page):
    text = html.unescape(page)
    assert text.count("The file stands behind each heading.") == 1 and 'id="note-1"' in page
    assert page.count('href="#note-1"') == 2


def test_page_says_what_was_run(results, page):
    text = html.unescape(re.sub(r"<[^>]+>", "", page))
    assert "9 runs: 3 methods, 1 seed" in text and "98 subjects of 7 sites" in text
    assert all(text.count(f"Said of {variant}.") == 1 for variant in METHODS)
    assert "2026-01-05 10:00 UTC" in text and "torch 2.13.0" in text
    row = pd.read_csv(results[0] / "loso.csv").set_index("variant").loc["brio"]
    mean, low, high = (100 * row[f"auc_{end}"] for end in ("mean", "sites_low", "sites_high"))
    assert re.search(rf"BRIO reaches (an AUC of )?{mean:.1f} \[{low:.1f}, {high:.1f}\]", text)
    assert "seed-0/predictions.csv" in text and "snakemake --cores all tables" in text


def test_only_overrides_of_what_was_run_are_shown():
    variants = {"gcn": {"method": "gcn", "hyperparameters": {"hidden": 8}}}
    asked = {"all": {"hidden": 8, "epochs": 9}, "gcn": {"hidden": 4}, "disco": {"epochs": 2}}
    run = {"config": {"overrides": asked}, "variants": variants}
    assert changed_hyperparameters(run) == {"all": {"hidden": 8}, "gcn": {"hidden": 4}}


def test_page_is_read_from_top_to_bottom(page):
    """The answer, what came out, how sure it is, the paper beside it, who was there, settings."""
    text = html.unescape(re.sub(r"<[^>]+>", "", page.split("<main>")[1]))
    names = re.findall(r'<h2 id="([^"]+)"', page)
    assert names[0] == "short" and names[-1] == "reproduce"
    assert names[1:3] == ["results", "sites"] and names[-2] == "notes"
    assert [name for name in names[1:-2] if name != "sites"] == [n for n in SECTIONS if n in names]
    needed = {"cohort", "results", "comparison", "permuted", "efficiency", "settings"}
    assert needed <= set(names)
    assert "nothing in them was run: The paper's numbers and ours." in text
    assert f"all methods: optimiser = {EVIL}" in html.unescape(page), "changed settings are said"


def test_sections_that_the_page_does_not_know_are_shown():
    items = [
        Item("table", name, name, name, "", "", {}) for name in ("Scan length", "paper", "cohort")
    ]
    found = sections(items)
    assert [one.name for one in found] == ["scan-length", "paper", "cohort"]
    assert found[0].title == "Scan length" and found[0].items == items[:1]


def test_same_inputs_give_the_same_page_from_folders_or_lists(results, page, tmp_path):
    root, arguments = results
    runs = [root / f"runs/demo/{protocol}/{variant}/seed-0"
            for protocol in ("loso", "id", "loso-permuted-1") for variant in METHODS]  # fmt: skip
    ok("overview", *arguments, "--runs", *runs, "--out", root / "again.html")
    assert (root / "again.html").read_text() == page


def test_a_missing_figure_is_named(results, tmp_path):
    root, arguments = results
    missing = [tmp_path / "none.png" if str(a).endswith("sites.png") else a for a in arguments]
    cells = root / "loso.runs.json"
    result = run_program("overview", *missing, "--runs", cells, "--out", tmp_path / "x.html")
    assert result.returncode == 1 and "none.png" in result.stderr
    assert result.stderr.startswith("error: ") and not (tmp_path / "x.html").exists()


def test_experiments_may_have_no_figure(results, tmp_path):
    root, arguments = results
    kept = [one for one in arguments if not str(one).endswith(".png")]
    runs = root / "loso.runs.json"
    ok("overview", *kept, "--runs", runs, "--out", tmp_path / "index.html")
    assert "data:image" not in (tmp_path / "index.html").read_text()


def test_the_report_needs_neither_torch_nor_imaging():
    modules = "pages.overview, summary, cohorts, tables.results, figures.results, figures.training"
    code = "; ".join(
        [f"import brio_core.reporting.{module.strip()}" for module in modules.split(",")]
        + ["import sys", "print({'torch', 'h5py', 'nilearn', 'sklearn'} & set(sys.modules))"]
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "set()\n", result.stdout + result.stderr
