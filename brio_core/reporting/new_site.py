"""Predictions for scans of a new site, as a table and a page."""

from html import escape
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.reporting.pages.plain import Block, Drawing, Heading, Notice, as_html
from brio_core.reporting.predicted import STABLE, UNSTABLE, Predicted, external_validation, predict
from brio_core.reporting.results import class_names
from brio_core.reporting.table import NONE, Cell, Row, Table, number, plural
from brio_core.system.errors import BrioError
from brio_core.system.files import write_text
from brio_core.training.bundle import read_bundle


def predict_scans(
    bundle: Path,
    scans: Path,
    out: Path,
    labels: Path | None = None,
    reestimates: int = 20,
    device: str = "cpu",
) -> None:
    """Write predictions.csv and index.html; print what labels tell, where there are some."""
    if Path(bundle).is_dir():
        raise BrioError(f"{bundle} is a folder; name a bundle, which is a file")
    model = read_bundle(Path(bundle))
    found = predict(model, Path(scans), labels and Path(labels), reestimates, device)
    # Nothing is written before all of it is known.
    table, text = found.table.to_csv(index=False, float_format="%.9g"), page(found)
    write_text(Path(out) / "predictions.csv", table)
    write_text(Path(out) / "index.html", text)
    done = found.table["probability"].notna().sum()
    print(f"{done} of {len(found.table)} scans are predicted; see {Path(out) / 'index.html'}.")
    print("For research only, not for clinical use.")
    if labels:
        print(external_validation(found))


NOTICE = (
    "For research only. Not for clinical use: no decision about a person may rest on this page."
)
BLUE, ORANGE, FAINT, INK = "#2f6f9f", "#b3541e", "#c9d1da", "#1c2430"
WIDTH, BINS = 640, 20
# Rows of a table on the page; the rest is in the file.
MOST_ROWS = 50


def page(found: Predicted) -> str:
    """The whole page."""
    about, table = found.bundle.about, found.table
    done = table[table["probability"].notna()]
    negative, positive = class_names(about["dataset"])
    cohort = about["dataset"].get("title", about["cohort"])
    said = int((done["decision"] == 1).sum())
    blocks: list[Block] = [
        Notice(NOTICE),
        f"{plural(len(done), 'scan')} predicted by {about['label']}, trained on {cohort}. Class 1 "
        f"({positive}) is said of {said}, class 0 ({negative}) of {len(done) - said}.",
    ]
    if table["label"].notna().any():
        blocks.append(f"With the labels that were given: {external_validation(found)}")
    if left := len(table) - len(done):
        verb = "was" if left == 1 else "were"
        blocks.append(f"{plural(left, 'scan')} {verb} not predicted; the last table says why.")
    blocks += [Heading("Probabilities"), _histogram(done)]
    blocks += [Heading("Stability"), *_stability(found, done)]
    blocks += [Heading("This site and the training sites"), _sites(found, done)]
    blocks += [Heading("Warnings"), *_warnings(table)]
    return as_html(f"Predictions for new scans: {about['label']}", blocks)


def _histogram(done: pd.DataFrame) -> Drawing:
    counts, _ = np.histogram(done["probability"], BINS, (0, 1))
    height, left, step = 160, 40, (WIDTH - 60) / BINS
    tallest = max(int(counts.max()), 1)
    parts = []
    for place, count in enumerate(counts):
        tall = (height - 30) * count / tallest
        parts.append(
            f'<rect x="{left + place * step + 1:.1f}" y="{height - 10 - tall:.1f}" '
            f'width="{step - 2:.1f}" height="{tall:.1f}" fill="{BLUE}"/>'
        )
    for value in (0, 0.25, 0.5, 0.75, 1):
        x = left + value * step * BINS
        parts.append(f'<text x="{x:.1f}" y="{height + 8}" text-anchor="middle">{value:g}</text>')
    parts.append(f'<text x="{left - 6}" y="24" text-anchor="end">{tallest}</text>')
    middle = left + step * BINS / 2
    parts.append(
        f'<text x="{middle:.1f}" y="{height + 26}" text-anchor="middle">Probability of class 1'
        "</text>"
    )
    low, median, high = np.quantile(done["probability"], (0.25, 0.5, 0.75))
    words = f"Probabilities of class 1: median {median:.2f}, half of them {low:.2f} to {high:.2f}."
    return Drawing(_svg(height + 32, parts, words), words)


def _stability(found: Predicted, done: pd.DataFrame) -> list[Block]:
    if not found.reestimates:
        return ["Scans were not estimated again, so nothing is known about stability."]
    unstable = done[done["stability"] < STABLE].sort_values("stability")
    text = (
        f"Every scan was estimated again {found.reestimates} times from blocks of its own frames. "
        f"A decision is called stable if at least {100 * STABLE:.0f} % of these agree with it: "
        f"{len(done) - len(unstable)} of {len(done)} are. The mean agreement is "
        f"{100 * done['stability'].mean():.0f} %."
    )
    if unstable.empty:
        return [text]
    rows = [
        Row((Cell(str(one.subject)), Cell(str(one.decision)), Cell(f"{one.probability:.2f}",
             f"[{one.probability_low:.2f}, {one.probability_high:.2f}]"),
             Cell(f"{100 * one.stability:.0f} %")))
        for one in unstable.head(MOST_ROWS).itertuples()
    ]  # fmt: skip
    columns = ("Subject", "Decision", "Probability", "Re-estimates that agree")
    title = f"Unstable subjects{_first(unstable)}"
    return [text, Table(title, "", columns, tuple(rows))]


def _sites(found: Predicted, done: pd.DataFrame) -> Drawing:
    """Distances of site means to the nearest other site's, with that of the new scans."""
    between = found.bundle.arrays["between"]
    names = [one["site"] for one in found.bundle.about["training"]["sites"]]
    lines = [*zip(names, between, [FAINT] * len(names)), ("New", found.site_distance, ORANGE)]
    lines.sort(key=lambda line: line[1])
    farthest = max(line[1] for line in lines) or 1.0
    parts = []
    for place, (name, distance, colour) in enumerate(lines):
        y, wide = 18 * place, (WIDTH - 220) * distance / farthest
        strong = ' font-weight="bold"' if name == "New" else ""
        parts.append(
            f'<text x="130" y="{y + 13}" text-anchor="end"{strong}>{escape(name[:20])}</text>'
            f'<rect x="138" y="{y + 3}" width="{wide:.1f}" height="12" fill="{colour}"/>'
            f'<text x="{144 + wide:.1f}" y="{y + 13}">{distance:.2f}</text>'
        )
    far = int((done["distance_percentile"] >= 95).sum())
    below = int((between < found.site_distance).sum())
    nearest = done["nearest_site"].value_counts().index[0]
    words = (
        "Distance of the mean connectivity of every site from the nearest other site, in deviations"
        " of single scans, without what chance adds where scans are few. Here "
        f"{below} of {len(between)} training sites lie nearer to another "
        f"one. {far} of {len(done)} scans are farther from all training sites than 95 % of training"
        f" subjects are from other sites. Most scans are nearest to {nearest}."
    )
    return Drawing(_svg(18 * len(lines) + 6, parts, words), words)


def _warnings(table: pd.DataFrame) -> list[Block]:
    warned = table[~table["warnings"].isin(["", UNSTABLE])]
    if warned.empty:
        return ["There are none beside those of unstable decisions."]
    rows = [
        Row((Cell(str(one.subject)), Cell(number(one.probability, ".2f")), Cell(one.warnings)))
        for one in warned.head(MOST_ROWS).itertuples()
    ]
    columns = ("Subject", "Probability", "Warnings")
    title = f"{plural(len(warned), 'subject')} with warnings{_first(warned)}"
    note = f"{NONE} where there is no prediction."
    return [Table(title, "", columns, tuple(rows), (note,), left=(0, 2))]


def _first(rows: pd.DataFrame) -> str:
    return f", the first {MOST_ROWS}" if len(rows) > MOST_ROWS else ""


def _svg(height: int, parts: list[str], words: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
    )
