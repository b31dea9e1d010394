"""Pages are short and true, and a site is made of them."""

import csv
import re
from pathlib import Path

import pytest

from brio_core.reporting.catalogue import catalogue
from brio_core.reporting.pages.document import RECORD, fill_again
from tests.programs import run_program

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "CONTRIBUTING.md", "config/README.md", "results/README.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
WORDS = {"sentence": 25, "cell": 15, "page": 1500}
ANSWER = "docs/results/abide-cc200.md"
SCORES = "docs/results/abide-cc200/main-loso.csv"


def prose(text: str) -> str:
    """A page without code blocks and comments; code within a line is one word, a link its text."""
    text = re.sub(r"```.*?```|<!--.*?-->", "", text, flags=re.S)
    text = re.sub(r"`[^`]+`", "code", text)
    return re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)


def too_long(parts: list[str], limit: int) -> list[str]:
    return [part for part in parts if len(re.findall(r"\S*\w\S*", part)) > limit]


def sentences(text: str) -> list[str]:
    """Sentences of paragraphs, headings and list items, each of which ends a sentence."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("|")]
    blocks = re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )|(?<=\n)(?=#)", "\n".join(lines))
    return [part for block in blocks for part in re.split(r"(?<=[.!?])[)*\"]*\s+", block)]


def cells(text: str) -> list[str]:
    rows = [line for line in text.splitlines() if line.lstrip().startswith("|")]
    return [cell for row in rows for cell in row.strip().strip("|").split("|")]


@pytest.mark.parametrize("page", PAGES)
def test_sentences_and_cells_are_short(page):
    text = prose((ROOT / page).read_text(encoding="utf-8"))
    found = too_long(sentences(text), WORDS["sentence"]) + too_long(cells(text), WORDS["cell"])
    assert not found, f"{page}: shorten\n" + "\n".join(found)


def test_the_answer_on_abide_takes_five_minutes():
    """With its tables, but without what stands for a picture that cannot be seen."""
    text = prose(re.sub(r"!\[.*?\]\(.*?\)\n", "", (ROOT / ANSWER).read_text(encoding="utf-8")))
    assert not too_long([re.sub(r"[|\xa0]", " ", text)], WORDS["page"])
    assert not too_long(sentences(text), WORDS["sentence"])


def test_scores_of_the_readme_are_the_stored_ones():
    """Where this fails, the message shows what the rows should be."""
    with open(ROOT / SCORES, encoding="utf-8") as file:
        stored = {row["label"]: row for row in csv.DictReader(file)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| ([^|]+) \| \d+\.\d \| \[.*\] \| \d+ \|$", readme, re.M)
    assert "BRIO" in shown and max(stored, key=lambda label: stored[label]["auc_mean"]) == shown[0]
    for row in (stored[label] for label in shown):
        low, mean, high = (
            100 * float(row[f"auc_{end}"]) for end in ("sites_low", "mean", "sites_high")
        )
        line = f"| {row['label']} | {mean:.1f} | [{low:.1f}, {high:.1f}] | {row['seeds']} |"
        assert line in readme, f"should be {line}"


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The documentation site; a dead link or anchor would have stopped its making."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    done = run_program("site", "--out", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_every_page_and_fetches_nothing(site):
    pages = list(site.rglob("*.html"))
    for path in (ROOT / "docs").rglob("*.md"):
        name = "index.html" if path.stem == "README" else f"{path.stem}.html"
        assert site / path.relative_to(ROOT).with_name(name) in pages
    home = (site / "index.html").read_text(encoding="utf-8")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = r"<(?:script|img|iframe|source)[^>]*src=\S*//|<link[^>]*href=\"?https?:"
        assert not re.search(fetched, text), page
        # A list needs an empty line before it, or it is part of the paragraph.
        assert not re.search(r"<p>(?:[^<]|<(?!/p>))*\n(?:[-*]|1\.) ", text), page
    reference = (site / "reference" / "python.html").read_text(encoding="utf-8")
    assert "fisher_z_connectivity" in reference and "reference/methods.html" in home


def test_the_reference_names_all_methods_and_outputs(site):
    methods = (site / "reference" / "methods.html").read_text(encoding="utf-8")
    for path in (ROOT / "config" / "methods").glob("*.yaml"):
        assert f"<code>{path.stem}</code>" in methods
    outputs = (site / "reference" / "outputs.html").read_text(encoding="utf-8")
    for name in (*catalogue("tables"), *catalogue("figures")):
        assert f"<code>{name}</code>" in outputs


def test_pages_are_what_their_templates_and_tables_give():
    results = ROOT / "docs/results"
    filled = {}
    for record in results.glob(f"*/{RECORD}"):
        filled |= fill_again(record.parent)
    assert set(filled) == set(results.glob("*.md"))
    for page, text in filled.items():
        assert page.read_text(encoding="utf-8") == text, "run 'make pages'"


def test_tables_of_pages_hold_no_subjects():
    tables = list((ROOT / "docs/results").glob("*/*.csv"))
    assert tables
    for table in tables:
        columns = table.read_text(encoding="utf-8").partition("\n")[0].split(",")
        assert not {"subject", "logit", "probability"} & set(columns), table
