"""What goes with a high AUC: sites that agree, or predictions that hold under re-estimation?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from brio_core.evaluation.intervals import DRAWS, middle_share
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.diagnostics import Diagnostics, read_diagnostics
from brio_core.reporting.given import Given
from brio_core.reporting.table import Cell, Row, Table, number, percent
from brio_core.system.seeds import numpy_generator

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Agreement, stability and AUC",
    "caption": "Do sites that agree, or predictions that hold under re-estimation, go with a high "
    "AUC?",
}

MEASURES = {
    "discrepancy": "site_discrepancy",
    "variation": "predictive_variation",
    "held_out": "held_out_variation",
}
COLUMNS = (
    "Method", "Site discrepancy", "Predictive variation", "On held-out subjects",
    "AUC, diagnosed seeds",
)  # fmt: skip
# What the paper compares; CORE is reimplemented here.
PAPER = ("coral", "irm", "gsat", "brainood", "core", "brio-wo-qg-lambda0", "brio")
# Of which methods: all without their variants, and the paper's.
SETS = {"": "all {} methods", "paper_": "{} of the paper's seven"}
FEWEST = 3


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """Both measures beside the AUC on unseen sites, and their rank correlations with it."""
    rows = stability_rows(read_diagnostics(given.files["diagnostics"]))
    table = given.table(
        COLUMNS,
        by_cohort(rows, given, COLUMNS, _cells, _together),
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


def stability_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
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


def _correlations(one: Diagnostics, sites: pd.DataFrame) -> dict[str, float]:
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
                    names = (f"{name}{measure}_{end}{part}" for part in ("", "_low", "_high"))
                    found |= dict(zip(names, estimate))
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


def _cells(part: pd.DataFrame) -> list[Cell]:
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
