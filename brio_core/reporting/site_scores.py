"""Sensitivity, specificity and calibration: the long table by site, and its means on the page."""

import math

import pandas as pd

from brio_core.reporting.results_table import blocks_of_rows
from brio_core.reporting.tables import Cell, Table, with_sd

SHARES = ("sensitivity", "specificity", "balanced_accuracy")


def site_scores_table(
    sites: pd.DataFrame, experiment: dict, datasets: dict, planned: dict | None = None
) -> Table:
    """Mean ± sd over sites; the CSV beside it has every site."""
    return Table(
        title=experiment.get("title", "Scores by site"),
        caption=experiment.get("caption", ""),
        columns=(
            "Method", "Sensitivity", "Specificity", "Balanced accuracy", "Brier score",
            "Calibration in the large", "Calibration slope",
        ),
        rows=tuple(blocks_of_rows(sites, _cells, 6, datasets, planned)),
        notes=(
            "Mean ± standard deviation over test folds (held-out sites), at probability 0.5; the "
            "first three in %. Brier score: 0.25 is always saying 0.5. Calibration in the large: "
            "mean probability minus share of class 1, best 0. Slope: median over sites, 1 is "
            "calibrated and less is overconfident; in brackets the number of sites that have one, "
            "as sites without overlap of the classes have none.",
        ),
        section="comparison",
    )  # fmt: skip


def _cells(own: pd.DataFrame) -> tuple[Cell, ...]:
    slopes = own["calibration_slope"].dropna()
    slope = f"{slopes.median():.2f}" if len(slopes) else "–"
    return (
        *(with_sd(own[name].mean(), own[name].std(ddof=1)) for name in SHARES),
        _number(own["brier"], ".3f"),
        _number(own["calibration_in_the_large"], "+.3f"),
        Cell(slope, f"[{len(slopes)}]"),
    )


def _number(values: pd.Series, form: str) -> Cell:
    sd = values.std(ddof=1)
    return Cell(format(values.mean(), form), "" if math.isnan(sd) else f"± {sd:.3f}")
