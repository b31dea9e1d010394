"""The numbers of the diagnostics, and what goes with a high AUC."""

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from brio_core.evaluation.intervals import DRAWS, middle_share
from brio_core.evaluation.mismatch import AXES, discordance_rate
from brio_core.reporting import diagnostics
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.catalogue import REFERENCE, Given, output
from brio_core.reporting.paired import MARGIN
from brio_core.reporting.results import place_title
from brio_core.reporting.table import Cell, Row, Table, heading, interval_columns, number, percent
from brio_core.system.seeds import numpy_generator

PANELS_COLUMNS = ("Panel", "Of", "Quantity", "Value", "Standard error or range")
NOTE = (
    "(a) Spearman's rho and discordant pairs over runs; rank correlations over methods, with "
    "intervals, are in the table of stability. (b) Means over runs. (c) Shares of runs with "
    "discrepancy below and variation above the median, of the sweep and BRIO (as in the paper), or "
    "of all methods and λ = 0. Medians of the sweep alone make some of it mechanical: strong "
    "alignment must lie below. AUC is kept when validation AUC falls by at most {:.1f} points. (d) "
    "AUC by the share of factors kept; the range holds 90 % of the random orders."
)
MEDIANS = {"": "medians of the sweep", "_all": "medians of all methods"}


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="The numbers of the diagnostics figure",
    caption="Every number that the four panels show, and those they would show with other "
    "methods or medians.",
    options=["margin"],
)
def panels_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """The numbers behind the four panels of the diagnostics figure.

    One row per cohort, panel and number.
    """
    margin = given.entry.get("margin", MARGIN)
    parts, lines = [], []
    for one in diagnostics.read_diagnostics(given.files["diagnostics"]):
        rows = pd.DataFrame(panel_rows(one, margin))
        place = {"cohort": one.cohort, "protocol": one.protocol}
        parts.append(rows.assign(**place)[[*place, *rows]])
        lines.append(heading(place_title(given.datasets, one.cohort, one.protocol)))
        lines += [Row(_panels_cells(row)) for _, row in rows.iterrows()]
    notes = NOTE.format(100 * margin)
    table = given.table(PANELS_COLUMNS, lines, notes, left=(0, 1, 2), folded=True)
    return pd.concat(parts, ignore_index=True), table


def panel_rows(one: diagnostics.Diagnostics, margin: float) -> Iterator[dict]:
    """The numbers of a cohort: ``panel``, ``of``, ``quantity``, ``value``, ``error`` or a range."""
    yield from _across_methods(one)
    yield from _sweep(one)
    labels = diagnostics.sweep_runs(one)[0]
    for end, name in MEDIANS.items():
        runs = diagnostics.sweep_mismatches(one, margin, diagnostics.compared(one) if end else None)
        rates = runs.groupby("variant", sort=False)[["total", "preserved"]].mean()
        for variant, row in rates.iterrows():
            for kind, text in (("total", "mismatches"), ("preserved", "mismatches that keep AUC")):
                yield _row("c", labels[variant], f"{text}, {name}", row[kind])
    yield from _retention(one)


def relations(one: diagnostics.Diagnostics) -> dict[str, tuple[float, float]]:
    """Rank correlation of both axes over runs and share of discordant pairs, of sets of methods."""
    runs, every = diagnostics.compared(one), one.table("folds")
    sets = {"all methods": runs, "the paper's methods": every[every["variant"].isin(PAPER)]}
    found = {}
    for name, part in sets.items():
        if part["variant"].nunique() > 1:
            (rho,) = spearman(*(part[[axis]] for axis in AXES))
            found[name] = float(rho), discordance_rate(diagnostics.with_every_seed(one, part))
    return found


def _across_methods(one: diagnostics.Diagnostics) -> Iterator[dict]:
    for name, (rho, discordant) in relations(one).items():
        yield _row("a", name, "Spearman's rho over runs", rho)
        yield _row("a", name, "discordant pairs", discordant)
    means = diagnostics.compared(one).groupby("variant")[[*AXES]].mean()
    for variant, about in one.variants.items():
        for axis in AXES if variant in means.index else ():
            value = means.loc[variant, axis]
            yield _row("a", about["label"], axis.replace("_", " "), value)


def _sweep(one: diagnostics.Diagnostics) -> Iterator[dict]:
    labels, runs = diagnostics.sweep_runs(one)
    groups = runs.groupby("variant")[[*AXES]]
    mean, error, chosen = groups.mean(), groups.sem(), diagnostics.matched(one)
    for variant, label in labels.items():
        name = f"{label} (chosen by validation)" if variant == chosen else label
        for axis in AXES:
            numbers = mean.loc[variant, axis], error.loc[variant, axis]
            yield _row("b", name, axis.replace("_", " "), *numbers)


def _retention(one: diagnostics.Diagnostics) -> Iterator[dict]:
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


def _panels_cells(row: pd.Series) -> tuple[Cell, ...]:
    aside = f"± {row['error']:.3g}" if pd.notna(row["error"]) else ""
    if pd.notna(row["low"]):
        aside = f"{row['low']:.3f} to {row['high']:.3f}"
    texts = row["panel"], row["of"], row["quantity"], number(row["value"], ".3f"), aside
    return tuple(map(Cell, texts))


MEASURES = {
    "discrepancy": "site_discrepancy",
    "variation": "predictive_variation",
    "held_out": "held_out_variation",
}
STABILITY_COLUMNS = (
    "Method", "Site discrepancy", "Predictive variation", "On held-out subjects",
    "AUC, diagnosed seeds",
)  # fmt: skip
# What the paper compares; CORE is reimplemented here.
PAPER = ("coral", "irm", "gsat", "brainood", "core", "brio-wo-qg-lambda0", "brio")
# Of which methods: all without their variants, and the paper's.
SETS = {"": "all {} methods", "paper_": "{} of the paper's seven"}
FEWEST = 3


@output(
    files=["diagnostics"],
    page="diagnostics",
    title="Agreement, stability and AUC",
    caption="Do sites that agree, or predictions that hold under re-estimation, go with a high "
    "AUC?",
)
def stability_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What goes with a high AUC: sites that agree, or predictions that hold under re-estimation?

    Both measures beside the AUC on unseen sites, and their rank correlations with it.
    """
    rows = stability_rows(diagnostics.read_diagnostics(given.files["diagnostics"]))
    table = given.table(
        STABILITY_COLUMNS,
        by_cohort(rows, given, STABILITY_COLUMNS, _stability_cells, _together),
        "Means over held-out sites. Site discrepancy: Sinkhorn divergence between training sites, "
        "of representations before the classifier. Predictive variation: change of the logit when "
        "connectivity is estimated again from other frames of the same scan, relative to its "
        "spread between subjects, in training subjects (as in the paper) and in held-out ones. AUC "
        "in %.",
        "Rank correlation: Spearman's, over methods, with the 95 % interval of a bootstrap of "
        "methods. The paper relates variation to discrepancy, and neither to AUC. A better fit of "
        "training subjects may lower their variation. It says nothing about causes.",
    )
    return rows, table


def stability_rows(found: Sequence[diagnostics.Diagnostics]) -> pd.DataFrame:
    """One row per cohort and variant: means over held-out sites, each averaged over seeds.

    ``{measure}_rho`` is Spearman's rank correlation of these means with AUC over the ``methods``
    of a cohort, ``{measure}_discrepancy_rho`` that with the discrepancy, and ``paper_...`` the same
    of the methods in the paper. They are the same in all rows of a cohort.
    """
    rows = []
    for one in found:
        sites = one.table("folds").groupby(["variant", "fold"])[[*MEASURES.values(), "test_auc"]]
        sites = sites.mean()
        means = sites.groupby("variant").mean()
        together = _correlations(one, sites)
        for variant in one.variants:
            mean = means.loc[variant]
            row = one.identity(variant) | {"folds": len(sites.loc[variant])}
            row |= {**mean[list(MEASURES.values())], "auc_mean": mean["test_auc"]}
            rows.append(row | together)
    return pd.DataFrame(rows)


def _correlations(one: diagnostics.Diagnostics, sites: pd.DataFrame) -> dict[str, float]:
    own = [variant for variant, about in one.variants.items() if variant == about["method"]]
    found: dict[str, float] = {}
    for name, methods in zip(SETS, (own, [key for key in PAPER if key in one.variants])):
        found[f"{name}methods"] = len(methods)
        if len(methods) < FEWEST:
            continue
        # Sites at which all of these were tested.
        tables = {
            key: sites[key].unstack().loc[methods].dropna(axis=1).mean(axis=1) for key in sites
        }
        for measure, column in MEASURES.items():
            pairs = {"rho": "test_auc", "discrepancy_rho": MEASURES["discrepancy"]}
            for end, other in pairs.items():
                if column != other:
                    estimate = correlation(tables[column], tables[other], (one.cohort, name))
                    found |= interval_columns(f"{name}{measure}_{end}", estimate)
    return found


def correlation(first: pd.Series, second: pd.Series, key: tuple) -> tuple[float, float, float]:
    """Spearman's rank correlation over methods, and the interval of a bootstrap of methods."""
    one, other = first.to_numpy(), second.to_numpy()
    draws = numpy_generator("methods", *key, len(one)).integers(0, len(one), (len(one), DRAWS))
    with np.errstate(invalid="ignore"):
        (rho,) = spearman(one[:, None], other[:, None])
        again = spearman(one[draws], other[draws])
    # Draws of a single method have no correlation.
    again = again[~np.isnan(again)]
    return float(rho), *(middle_share(again) if len(again) else (np.nan, np.nan))


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of every column (N, B) with the same of the other, (B,)."""
    one, other = (pd.DataFrame(values).rank().to_numpy() for values in (first, second))
    one, other = one - one.mean(0), other - other.mean(0)
    return (one * other).sum(0) / np.sqrt((one**2).sum(0) * (other**2).sum(0))


def _stability_cells(part: pd.DataFrame) -> list[Cell]:
    (row,) = part.to_dict("records")
    measures = [Cell(number(row[column], ".3g")) for column in MEASURES.values()]
    return [*measures, Cell(percent(row["auc_mean"]))]


def _together(own: pd.DataFrame) -> list[Row]:
    first, lines = own.iloc[0], []
    for end, what in (("rho", "AUC"), ("discrepancy_rho", "discrepancy")):
        for name, methods in SETS.items():
            if pd.isna(first.get(f"{name}variation_{end}")):
                continue
            count = methods.format(f"{first[f'{name}methods']:.0f}")
            cells = [Cell(f"Rank correlation with {what}, {count}")]
            for measure in MEASURES:
                column = f"{name}{measure}_{end}"
                ends = [first.get(f"{column}{part}") for part in ("", "_low", "_high")]
                texts = [number(one, ".2f").replace("-", "−") for one in ends]
                known = pd.notna(ends[0])
                cells.append(Cell(texts[0], f"[{texts[1]}, {texts[2]}]") if known else Cell(""))
            lines.append(Row((*cells, Cell(""))))
    return lines
