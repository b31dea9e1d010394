"""The numbers behind the four panels of the diagnostics figure."""

from collections.abc import Iterator

import pandas as pd

from brio_core.evaluation.mismatch import AXES, discordance_rate
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.diagnostics import (
    Diagnostics,
    compared,
    matched,
    read_diagnostics,
    sweep_mismatches,
    sweep_runs,
    with_every_seed,
)
from brio_core.reporting.given import Given
from brio_core.reporting.paired import MARGIN
from brio_core.reporting.results import place_title
from brio_core.reporting.table import Cell, Row, Table, heading, number
from brio_core.reporting.tables.stability import PAPER, spearman

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "The numbers of the diagnostics figure",
    "caption": "Every number that the four panels show, and those they would show with other "
    "methods or medians.",
    "options": ["margin"],
}

COLUMNS = ("Panel", "Of", "Quantity", "Value", "Standard error or range")
NOTE = (
    "(a) Spearman's rho and discordant pairs over runs; rank correlations over methods, with "
    "intervals, are in the table of stability. (b) Means over runs. (c) Shares of runs with "
    "discrepancy below and variation above the median, of the sweep and BRIO (as in the paper), or "
    "of all methods and λ = 0. Medians of the sweep alone make some of it mechanical: strong "
    "alignment must lie below. AUC is kept when validation AUC falls by at most {:.1f} points. (d) "
    "AUC by the share of factors kept; the range holds 90 % of the random orders."
)
MEDIANS = {"": "medians of the sweep", "_all": "medians of all methods"}


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, panel and number."""
    margin = given.entry.get("margin", MARGIN)
    parts, lines = [], []
    for one in read_diagnostics(given.files["diagnostics"]):
        rows = pd.DataFrame(panel_rows(one, margin))
        place = {"cohort": one.cohort, "protocol": one.protocol}
        parts.append(rows.assign(**place)[[*place, *rows]])
        lines.append(heading(place_title(given.datasets, one.cohort, one.protocol)))
        lines += [Row(_cells(row)) for _, row in rows.iterrows()]
    notes = NOTE.format(100 * margin)
    table = given.table(COLUMNS, lines, notes, left=(0, 1, 2), folded=True)
    return pd.concat(parts, ignore_index=True), table


def panel_rows(one: Diagnostics, margin: float) -> Iterator[dict]:
    """The numbers of a cohort: ``panel``, ``of``, ``quantity``, ``value``, ``error`` or a range."""
    yield from _across_methods(one)
    yield from _sweep(one)
    labels = sweep_runs(one)[0]
    for end, name in MEDIANS.items():
        runs = sweep_mismatches(one, margin, compared(one) if end else None)
        rates = runs.groupby("variant", sort=False)[["total", "preserved"]].mean()
        for variant, row in rates.iterrows():
            for kind, text in (("total", "mismatches"), ("preserved", "mismatches that keep AUC")):
                yield _row("c", labels[variant], f"{text}, {name}", row[kind])
    yield from _retention(one)


def relation(one: Diagnostics, runs: pd.DataFrame) -> tuple[float, float]:
    """Rank correlation of both axes over runs, and the share of discordant pairs."""
    (rho,) = spearman(*(runs[[axis]] for axis in AXES))
    return float(rho), discordance_rate(with_every_seed(one, runs))


def relations(one: Diagnostics) -> dict[str, tuple[float, float]]:
    """Those of all methods, and of the methods in the paper."""
    runs, every = compared(one), one.table("folds")
    sets = {"all methods": runs, "the paper's methods": every[every["variant"].isin(PAPER)]}
    several = {name: part for name, part in sets.items() if part["variant"].nunique() > 1}
    return {name: relation(one, part) for name, part in several.items()}


def _across_methods(one: Diagnostics) -> Iterator[dict]:
    for name, (rho, discordant) in relations(one).items():
        yield _row("a", name, "Spearman's rho over runs", rho)
        yield _row("a", name, "discordant pairs", discordant)
    means = compared(one).groupby("variant")[[*AXES]].mean()
    for variant, about in one.variants.items():
        for axis in AXES if variant in means.index else ():
            value = means.loc[variant, axis]
            yield _row("a", about["label"], axis.replace("_", " "), value)


def _sweep(one: Diagnostics) -> Iterator[dict]:
    labels, runs = sweep_runs(one)
    groups = runs.groupby("variant")[[*AXES]]
    mean, error, chosen = groups.mean(), groups.sem(), matched(one)
    for variant, label in labels.items():
        name = f"{label} (chosen by validation)" if variant == chosen else label
        for axis in AXES:
            numbers = mean.loc[variant, axis], error.loc[variant, axis]
            yield _row("b", name, axis.replace("_", " "), *numbers)


def _retention(one: Diagnostics) -> Iterator[dict]:
    rows = one.table("retention")
    rows = rows[rows["variant"] == REFERENCE]
    if rows.empty:
        return
    rows = rows.assign(share=rows["kept"] / rows["factors"])
    # Sites and seeds first, so that a draw of random orders is one number.
    draws = rows.groupby(["ranking", "share", "draw"], sort=False)["test_auc"].mean()
    for (ranking, share), own in draws.groupby(level=[0, 1], sort=False):
        ends = own.quantile([0.05, 0.95]).tolist() if len(own) > 1 else (None, None)
        yield _row("d", ranking, f"AUC, {100 * share:g} % of factors", own.mean(), None, *ends)


def _row(panel: str, of: str, quantity: str, value, error=None, low=None, high=None) -> dict:
    return {"panel": panel, "of": of, "quantity": quantity, "value": value, "error": error,
            "low": low, "high": high}  # fmt: skip


def _cells(row: pd.Series) -> tuple[Cell, ...]:
    aside = f"± {row['error']:.3g}" if pd.notna(row["error"]) else ""
    if pd.notna(row["low"]):
        aside = f"{row['low']:.3f} to {row['high']:.3f}"
    texts = row["panel"], row["of"], row["quantity"], number(row["value"], ".3f"), aside
    return tuple(map(Cell, texts))
