"""Pages have short sentences and short table cells; the README shows stored scores."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = ["README.md", "config/README.md", "results/README.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md"))
WORDS = {"sentence": 25, "cell": 15}
SCORES = "docs/results/abide-cc200/main-loso.csv"


def prose(page: str) -> str:
    """A page without code blocks and comments; code within a line is one word, a link its text."""
    text = (ROOT / page).read_text(encoding="utf-8")
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
    text = prose(page)
    found = too_long(sentences(text), WORDS["sentence"]) + too_long(cells(text), WORDS["cell"])
    assert not found, f"{page}: shorten\n" + "\n".join(found)


def test_scores_of_the_readme_are_the_stored_ones():
    """Where this fails, the message shows what the rows should be."""
    with open(ROOT / SCORES, encoding="utf-8") as file:
        stored = {row["label"]: row for row in csv.DictReader(file)}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| ([^|]+) \| \d+\.\d \| \[.*\] \| \d+ \|$", readme, re.M)
    assert "BRIO" in shown and max(stored, key=lambda label: stored[label]["auc_mean"]) in shown
    for row in (stored[label] for label in shown):
        low, mean, high = (
            100 * float(row[f"auc_{end}"]) for end in ("sites_low", "mean", "sites_high")
        )
        line = f"| {row['label']} | {mean:.1f} | [{low:.1f}, {high:.1f}] | {row['seeds']} |"
        assert line in readme, f"should be {line}"
