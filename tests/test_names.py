"""Names and titles that somebody else chose stay text, in tables, figures, pages and terminals."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from tiny import DATASET, make_lab

from brio_core.cohorts.candidates import find_candidates
from brio_core.cohorts.readers.reader import open_reader
from brio_core.cohorts.tables import read_table, write_table
from brio_core.reporting import plotting
from brio_core.reporting.catalogue import Given, catalogue
from brio_core.system.errors import BrioError
from tests.reporting.standins import make_table, summarised, write_cohort, write_profile, write_run
from workflow.planning.loading import load
from workflow.planning.outputs import Item, as_json

ROOT = Path(__file__).resolve().parents[1]
SITES = ("$\\frac{", "A$x$", 'a "quoted" one', "<b>&amp;", "Zürich_%#", "a,b|c", "~^{}")
TITLE = 'The "$\\frac{x$" </script><script>alert(1)</script>'


@pytest.fixture
def lab(tmp_path):
    return make_lab(tmp_path / "lab")


def candidates(lab, **names: str) -> list[dict]:
    table = lab.folder / "data/tiny/participants.tsv"
    text = table.read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    table.write_text(text)
    return find_candidates(open_reader(DATASET, lab.folder / "data"))


@pytest.mark.parametrize("site, words", [
    ("all", "which stands for all sites in our tables; rename it"), ("x" * 256, "shorten it"),
    ("é" * 101, "over 200 bytes"), ("Site_2", "has sites 'Site_2' and 'site2'"),
])  # fmt: skip
def test_names_of_sites_that_are_refused(lab, site, words):
    with pytest.raises(BrioError, match=r"participants\.tsv.*") as error:
        candidates(lab, site3=site)
    assert words in str(error.value) and len(str(error.value)) < 400


def test_what_a_terminal_would_obey_is_written_out(lab, tmp_path):
    found = candidates(lab, site2="A\x1b[31m", site3="n\0ul", site4='"q"$')
    names = ["site0", "site1", "A\\x1b[31m", "n\\x00ul", '"q"$']
    assert list(dict.fromkeys(row["site"] for row in found)) == names
    write_table(tmp_path / "kept.tsv", ("subject", "site"), found)
    assert read_table(tmp_path / "kept.tsv")["site"].tolist() == [row["site"] for row in found]
    assert str(BrioError("no \x1b]0;title\a here\n")) == "no \\x1b]0;title\\x07 here"


@pytest.fixture
def results(tmp_path):
    write_cohort(tmp_path, sites=SITES)
    write_profile(tmp_path, sites=SITES)
    return tmp_path / "cohorts/demo"


def test_figures_take_nothing_for_a_formula(results, tmp_path):
    summary, sites = summarised(tmp_path, [write_run(tmp_path, name) for name in ("gcn", "brio")])
    tables = {key: results / f"{key}.tsv" for key in ("inclusion", "participants")}
    drawn = {
        "cohort": tables,
        "sites": {"profiles": results / "site_profile.tsv"},
        "auc_by_site": {"summaries": summary, "sites": sites},
    }
    for name, files in drawn.items():
        paths = {key: [str(path)] for key, path in files.items()}
        given = Given(catalogue("figures")[name], paths, datasets={"demo": {"title": TITLE}})
        drawing = given.make()
        plotting.save(drawing, given, tmp_path / name)
        texts = [one.get_text() for one in drawing.figure.findobj(plotting.plt.Text)]
        assert name == "auc_by_site" or set(SITES) <= set(texts)
        assert name != "cohort" or any(TITLE in text for text in texts)


def test_tables_hold_the_names(results, tmp_path):
    files = {key: [results / f"{key}.tsv"] for key in ("inclusion", "participants")}
    path = make_table("cohorts", tmp_path / "cohorts", datasets={"demo": {"title": TITLE}}, **files)
    assert pd.read_csv(path)["site"].tolist() == [*sorted(SITES), "all"]
    tex = path.with_suffix(".tex").read_text()
    assert r"\$\textbackslash{}frac\{ & " in tex and r"A\$x\$ & " in tex
    assert "&lt;/script&gt;" in path.with_suffix(".md").read_text()
    names = [
        row["cells"][0]["text"] for row in json.loads(path.with_suffix(".json").read_text())["rows"]
    ]
    assert names == [*sorted(SITES), "All sites"]


def test_nothing_ends_the_script_of_the_report():
    """Snakemake writes parameters and labels into a script of report.html as they are."""
    assert "<" not in as_json({"title": TITLE})
    assert json.loads(as_json({"title": TITLE})) == {"title": TITLE}
    resolved = load({"cohorts": ["demo"]})
    entry = {"name": "x", "table": "results", "title": TITLE}
    shown = Item(resolved, "tables", entry).heading
    assert "<" not in str(shown) and shown["title"].startswith('The "$\\frac{x$" ‹/script>')


def test_a_terminal_without_umlauts():
    program = "from brio_core.system.cli import run; run(lambda: print('Zürich', '×'))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False,
        env=os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "Z\\xfcrich \\xd7\n"), done.stderr
