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

SHARES = {
    "sensitivity": "Sensitivity",
    "specificity": "Specificity",
    "balanced_accuracy": "Balanced accuracy",
}
CALIBRATION = ("Brier score", "Calibration in the large", "Calibration slope")
SPANS = (
    ("", 1), ("At probability 0.5", 3), ("At the threshold", 3), ("As predicted", 3),
    ("Recalibrated", 3),
)  # fmt: skip
COLUMNS = ("Method", *(*SHARES.values(),) * 2, *CALIBRATION * 2)


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """The long table, and mean ± standard deviation over sites."""
    sites = read_sites(given.files["sites"])
    table = given.table(
        COLUMNS,
        by_cohort(sites, given, COLUMNS, _cells),
        "Mean ± standard deviation over test folds (held-out sites); shares in %. Brier score: "
        "0.25 is always saying 0.5. Calibration in the large: mean probability minus share of "
        "class 1, best 0. Slope: median over sites, 1 is calibrated and less is overconfident. In "
        "brackets: the number of sites with a slope; where the classes do not overlap there is "
        "none.",
        "Threshold: the logit with the best balanced accuracy of the fold's validation subjects. "
        "Recalibration: a logistic regression of their labels on their logits. Where all source "
        "sites train, both use fits without the subject's site. –: external predictions have no "
        "validation subjects.",
        spans=SPANS,
    )
    return sites, table


def _cells(own: pd.DataFrame) -> list[Cell]:
    return [
        *_shares(own, ""),
        *_shares(own, "_threshold"),
        *_calibration(own, ""),
        *_calibration(own, "_recalibrated"),
    ]


def _shares(own: pd.DataFrame, end: str) -> list[Cell]:
    columns = (own[f"{name}{end}"] for name in SHARES)
    return [with_sd(column.mean(), column.std(ddof=1)) for column in columns]


def _calibration(own: pd.DataFrame, end: str) -> list[Cell]:
    brier, level = own[f"brier{end}"], own[f"calibration_in_the_large{end}"]
    slopes = own[f"calibration_slope{end}"].dropna()
    slope = Cell(f"{slopes.median():.2f}", f"[{len(slopes)}]") if len(slopes) else Cell(NONE)
    return [
        with_spread(brier.mean(), brier.std(ddof=1), ".3f"),
        with_spread(level.mean(), level.std(ddof=1), "+.3f"),
        slope,
    ]
