"""The catalogue: complete, readable without heavy packages, and what planning and checks use."""

import re
import subprocess
import sys

import pytest
import yaml

from brio_core.reporting.catalogue import FILES, KINDS, SECTIONS, Output, catalogue
from tests.programs import run_program
from tests.reporting.standins import ROOT

OUTPUTS = [output for kind in KINDS for output in catalogue(kind).values()]


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda one: f"{one.kind}-{one.name}")
def test_an_output_says_what_it_is_made_of(output):
    assert set(output.files) <= set(FILES)
    assert all((ROOT / file).is_file() for file in output.code)
    assert not output.title.endswith(".") and output.caption.endswith((".", "?", ""))
    assert output.shows.endswith((".", "?")), "the manual says what it shows"


@pytest.mark.parametrize("file", sorted({output.file for output in OUTPUTS}))
def test_outputs_are_given_what_they_read_and_nothing_else(file):
    used = set(re.findall(r'given\.files\["(\w+)"\]', (ROOT / file).read_text()))
    assert used == {name for output in OUTPUTS if output.file == file for name in output.files}


def test_every_output_of_the_shipped_experiments_is_in_the_catalogue():
    named = set()
    for path in (ROOT / "config/experiments").glob("*.yaml"):
        outputs = yaml.safe_load(path.read_text()).get("outputs", {})
        for kind in KINDS:
            key = kind.removesuffix("s")
            named |= {(kind, one.get(key, "results")) for one in outputs.get(kind, [])}
    assert named <= {(one.kind, one.name) for one in OUTPUTS}


def test_planning_reads_it_without_heavy_packages():
    code = (
        "import sys, brio_core.reporting.catalogue as c; c.catalogue('tables')\n"
        "assert not {'pandas', 'numpy', 'matplotlib', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_data_are_shown_before_training():
    early = {(one.kind, one.name) for one in OUTPUTS if one.before_training}
    tables = {("tables", name) for name in ("cohorts", "datasets", "regions", "sites")}
    assert early == tables | {("figures", name) for name in ("block_length", "cohort", "sites")}
    assert not Output("tables", "x", "x.py").before_training, "a drawing of nothing shows no data"


def test_an_unknown_name_is_refused():
    done = run_program("table", "winner", "--out-prefix", "x")
    assert done.returncode == 2 and "'winner'" in done.stderr


def test_categories_of_the_report_are_the_sections_of_the_page_in_their_order():
    found = {(one.page, one.category) for kind in KINDS for one in catalogue(kind).values()}
    assert {page for page, _ in found} <= set(SECTIONS), "all are known"
    in_order = [page for page, _ in sorted(found, key=lambda one: one[1])]
    assert in_order == [page for page in SECTIONS if page in in_order]
    own = catalogue("tables")["results"]._replace(page="mine")
    assert own.category.endswith(" mine")
