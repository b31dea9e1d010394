"""Pages of docs/results whose tables are beside them say what these say, and nothing by hand."""

from pathlib import Path

import pytest

from brio_core.reporting.pages.document import RECORD, fill_again

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGES = sorted(record.parent.with_suffix(".md") for record in RESULTS.glob(f"*/{RECORD}"))


@pytest.mark.parametrize("page", [pytest.param(page, id=page.stem) for page in PAGES])
def test_pages_are_what_their_templates_and_tables_give(page):
    assert page.read_text(encoding="utf-8") == fill_again(page).text, "run 'make pages'"


def test_tables_beside_pages_hold_no_subjects():
    assert PAGES
    for page in PAGES:
        for table in page.with_suffix("").glob("*.csv"):
            columns = table.read_text(encoding="utf-8").partition("\n")[0].split(",")
            assert not {"subject", "logit", "probability"} & set(columns), table
