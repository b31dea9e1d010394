"""Sensitivity, specificity and calibration: every site in the CSV, means over sites in print."""

import pandas as pd

from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.given import Given
from brio_core.reporting.results import read_sites
from brio_core.reporting.table import NONE, Cell, Table, with_sd, with_spread

OUTPUT = {
    "files": ["sites"],
    "page": "comparison",
    "title": "Beyond AUC",
    "caption": "Sensitivity, specificity and calibration on unseen sites.",
}

SHARES = ("sensitivity", "specificity", "balanced_accuracy")
COLUMNS = (
    "Method", "Sensitivity", "Specificity", "Balanced accuracy", "Brier score",
    "Calibration in the large", "Calibration slope",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """The long table, and mean ± standard deviation over sites."""
    sites = read_sites(given.files["sites"])
    table = given.table(
        COLUMNS,
        by_cohort(sites, given, COLUMNS, _cells),
        "Mean ± standard deviation over test folds (held-out sites), at probability 0.5; the first "
        "three in %. Brier score: 0.25 is always saying 0.5. Calibration in the large: mean "
        "probability minus share of class 1, best 0. Slope: median over sites, 1 is calibrated "
        "and less is overconfident. In brackets: the number of sites with a slope; where the "
        "classes do not overlap there is none.",
    )
    return sites, table


def _cells(own: pd.DataFrame) -> tuple[Cell, ...]:
    slopes = own["calibration_slope"].dropna()
    brier, level = own["brier"], own["calibration_in_the_large"]
    return (
        *(with_sd(own[name].mean(), own[name].std(ddof=1)) for name in SHARES),
        with_spread(brier.mean(), brier.std(ddof=1), ".3f"),
        with_spread(level.mean(), level.std(ddof=1), "+.3f"),
        Cell(f"{slopes.median():.2f}" if len(slopes) else NONE, f"[{len(slopes)}]"),
    )
