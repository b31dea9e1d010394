"""The page with one line per subject: everyone is there once, and nobody leaves the machine."""

import base64
import hashlib
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from brio_core.cohorts.stores import write_fc
from brio_core.reporting.pages import subjects
from brio_core.system.errors import BrioError
from tests.programs import run_program
from tests.reporting.standins import cohort, write_cohort, write_profile
from tests.reporting.test_browser import BINARY, chromium, console

ROOT = Path(__file__).resolve().parents[2]
SITES = ("North", "<b>South")
# The page allows no script but its own, so a frame around it presses its buttons.
PROBE = """<!doctype html><iframe id="page" src="{url}" style="width:390px"></iframe><script>
document.getElementById("page").onload = (event) => {{
  const page = event.target.contentWindow.document;
  const rows = () => [...page.querySelectorAll("tbody tr")].filter((row) => !row.hidden);
  const found = {{all: rows().length, wide: page.documentElement.scrollWidth}};
  page.querySelector("[data-show=out]").click();
  found.out = rows().length;
  page.querySelector("[data-show='']").click();
  const site = page.querySelector("a[data-site=North]");
  site.click();
  found.site = rows().length;
  found.said = page.getElementById("count").textContent;
  site.click();
  const head = page.querySelectorAll("thead th")[7];
  const values = () => rows().map((row) => row.cells[7].dataset.value);
  head.querySelector("button").click();
  found.up = values();
  head.querySelector("button").click();
  found.down = values();
  found.sorted = head.getAttribute("aria-sort");
  document.body.textContent = JSON.stringify(found);
}};</script>"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("results")
    folder = write_cohort(root, sites=SITES)
    folder = root / "cohorts" / "demo"
    write_profile(root, sites=SITES)
    lines = (folder / "inclusion.tsv").read_text().splitlines()[1:]
    moved = [f"{line.split(chr(9))[0]}\t0.{number % 9}" for number, line in enumerate(lines)]
    (folder / "candidates.tsv").write_text("\n".join(["subject\tmean_fd", *moved]) + "\n")
    names = cohort(SITES, 14)[0]
    matrices = np.random.default_rng(0).standard_normal((len(names), 9, 9)).astype(np.float32)
    write_fc(folder / "fc.h5", names, matrices + matrices.transpose(0, 2, 1))
    return folder


@pytest.fixture(scope="module")
def page(folder) -> str:
    out = folder / "subjects.html"
    label = '{"title": "A <demo>", "label": {"positive": "patient", "negative": "control"}}'
    done = run_program("subjects", "--cohort-dir", folder, "--dataset", label, "--out", out)
    assert done.returncode == 0, done.stderr
    return out.read_text()


def test_everyone_has_one_line(page, folder):
    rows = re.findall(
        r'<tr[^>]* class="(in|odd|out)" data-site="([^"]*)"><th[^>]*>(.*?)</tr>', page
    )
    listed = [line.split("\t")[0] for line in (folder / "inclusion.tsv").read_text().splitlines()]
    assert sorted(re.match("[^<]*", row[2])[0] for row in rows) == sorted(listed[1:])
    assert [state for state, *_ in rows].count("out") == 2
    odd = [row for state, _, row in rows if state == "odd"]
    assert len(odd) == 1 and "level of FC" in odd[0]
    excluded = [row for state, _, row in rows if state == "out"]
    assert any("excluded: too few frames: 40 of 60" in row for row in excluded)
    assert not any("<img" in row for row in excluded)
    assert all(row.count("<img") == 1 for state, _, row in rows if state != "out")
    assert "28 of 30 subjects are in the cohort. 2 are not: " in page
    assert page.count("<img") == 28 + 2, "and one mean per site"


def test_names_are_escaped_and_only_its_own_script_may_run(page):
    assert "<b>South" not in page and "&lt;b&gt;South" in page and "A &lt;demo&gt;" in page
    script = re.search(r"<script>(.*)</script>", page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.endswith(f"script-src 'sha256-{digest}'") and "default-src 'none'" in policy
    assert not re.search(r'(?:src|href)="(?!data:|#)', page), "it asks for nothing"
    anchors = re.findall(r'href="#([^"]*)"', page)
    assert anchors and all(f'id="{anchor}"' in page for anchor in anchors), "also without script"


def test_thumbnails_are_means_over_squares():
    matrices = np.random.default_rng(1).standard_normal((2, 100, 100)).astype(np.float32)
    matrices = matrices + matrices.transpose(0, 2, 1)
    found = subjects.thumbnails(matrices)
    order = subjects.alike_together(matrices.astype(np.float64).mean(axis=0))
    edges = [place * 100 // subjects.SIDE for place in range(subjects.SIDE + 1)]
    for one, image in zip(matrices.astype(np.float64), found):
        for i, j in ((0, 0), (3, 40), (47, 47)):
            own = [one[order[a], order[b]] for a in range(edges[i], edges[i + 1])
                   for b in range(edges[j], edges[j + 1])]  # fmt: skip
            assert image[i, j] == pytest.approx(np.mean(own), abs=1e-5)


def test_regions_that_go_together_stand_together():
    group = np.random.default_rng(2).permutation(np.repeat([0, 1, 2], 8))
    mean = (group[:, None] == group).astype(float) + 0.1 * (group[:, None] != group)
    ordered = group[subjects.alike_together(mean + np.diag(group * 0.01))]
    assert np.count_nonzero(np.diff(ordered)) == 2
    assert subjects.alike_together(np.ones((2, 2))).tolist() == [0, 1]


def test_a_picture_shows_its_values_and_a_page_of_thousands_stays_small():
    values = np.linspace(-2, 2, 45).reshape(5, 9)
    read = np.asarray(Image.open(io.BytesIO(subjects.png(values, 1.0))).convert("RGB")).astype(int)
    assert read.shape == (5, 9, 3)
    assert read[0, 0].tolist() == [0, 114, 178] and read[-1, -1].tolist() == [213, 94, 0]
    assert read[2, 4].tolist() == [255, 255, 255], "zero"
    noise = np.random.default_rng(3).standard_normal((48, 48))
    assert 1033 * (len(subjects.png(noise, 2.0)) * 4 / 3 + 500) < 3e6
    many = np.broadcast_to(np.float32(0), (20_000, 24, 24))
    assert subjects.thumbnails(many).size <= subjects.PIXELS


def test_files_that_do_not_belong_together_are_named(folder, tmp_path):
    for name in ("inclusion.tsv", "candidates.tsv", "site_profile.tsv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    write_fc(tmp_path / "fc.h5", ["somebody"], np.zeros((1, 4, 4), np.float32))
    with pytest.raises(BrioError, match=r"fc\.h5 and .*inclusion\.tsv list different subjects"):
        subjects.render(tmp_path, {})


def test_no_rule_reads_it():
    """So neither export, report, documents nor the files for another machine can hold it."""
    texts = {path.name: path.read_text() for path in (ROOT / "workflow" / "rules").glob("*.smk")}
    named = {name: text.count("subjects.html") for name, text in texts.items()}
    assert {name for name, count in named.items() if count} == {"connect.smk", "common.smk"}
    rule = texts["connect.smk"].partition("rule subjects:")[2]
    assert "report(" not in rule and "page=" in rule.partition("output:")[2]
    assert "subject_pages" not in "".join(texts.values()).replace("def subject_pages", "")
    for path in (ROOT / "brio_core" / "remote").glob("*.py"):
        assert "subjects.html" not in path.read_text()


@pytest.mark.browser
@pytest.mark.skipif(BINARY is None, reason="needs chromium: apt-get install chromium")
def test_the_script_filters_by_site_and_state_and_sorts(page, folder, tmp_path):
    probe = tmp_path / "probe.html"
    probe.write_text(PROBE.format(url=(folder / "subjects.html").as_uri()))
    done = chromium(tmp_path, probe.as_uri(), "--dump-dom")
    found = json.loads(re.search(r"<body>(\{.*\})</body>", done.stdout, re.S)[1])
    assert (found["all"], found["out"], found["site"]) == (30, 2, 15)
    assert found["said"] == "15 of 30 subjects shown" and found["wide"] <= 390
    numbers = [float(value) for value in found["up"] if value is not None]
    assert numbers == sorted(numbers) and len(numbers) == 28
    assert found["up"][-2:] == [None, None] == found["down"][-2:], "unknown values come last"
    assert [float(value) for value in found["down"][:28]] == numbers[::-1]
    assert found["sorted"] == "descending" and console(done) == []
