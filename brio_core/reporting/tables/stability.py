"""What goes with a high AUC: sites that agree, or predictions that hold under re-estimation?"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from brio_core.evaluation.intervals import LEVEL
from brio_core.evaluation.site_statistics import resampled_sites
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.diagnostics import Diagnostics, read_diagnostics
from brio_core.reporting.given import Given
from brio_core.reporting.table import Cell, Row, Table, percent

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Agreement, stability and AUC",
    "caption": "Do sites that agree, or predictions that hold under re-estimation, go with a high "
    "AUC?",
}

MEASURES = {"discrepancy": "site_discrepancy", "variation": "predictive_variation"}
COLUMNS = ("Method", "Site discrepancy", "Predictive variation", "AUC")


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """Both measures beside the AUC on unseen sites, and their rank correlations with it."""
    rows = stability_rows(read_diagnostics(given.files["diagnostics"]))
    table = given.table(
        COLUMNS,
        by_cohort(rows, given, COLUMNS, _cells, _together),
        "Means over held-out sites. Site discrepancy: Sinkhorn divergence between training sites, "
        "of representations before the classifier. Predictive variation: change of the logit when "
        "connectivity is estimated again from other frames of the same scan, relative to its "
        "spread between subjects. AUC in %, of the seeds that are diagnosed.",
        "Rank correlation: Spearman's, over methods without their variants, with the 95 % interval "
        "of a bootstrap of sites. It is about these methods, and says nothing about causes.",
    )
    return rows, table


def stability_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
    """One row per cohort and variant: means over held-out sites, each averaged over seeds.

    ``{measure}_rho`` is Spearman's rank correlation of these means with AUC over the ``methods``
    of a cohort, the same in all its rows; variants of a method do not count. Its interval is that
    of a bootstrap of sites.
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
    methods = [variant for variant, about in one.variants.items() if variant == about["method"]]
    found: dict[str, float] = {"methods": len(methods)}
    if len(methods) < 3:
        return found
    # Method x site, for sites at which all methods were tested.
    tables = {name: sites[name].unstack().loc[methods].dropna(axis=1) for name in sites}
    auc = tables.pop("test_auc").to_numpy()
    draws = resampled_sites(auc.shape[1], (one.cohort, one.protocol))
    for measure, column in MEASURES.items():
        values = tables[column].to_numpy()
        (rho,) = spearman(values.mean(1)[:, None], auc.mean(1)[:, None])
        again = spearman(values[:, draws].mean(2), auc[:, draws].mean(2))
        low, high = np.quantile(again, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        name = f"{measure}_rho"
        found |= {name: rho, f"{name}_low": low, f"{name}_high": high}
    return found


def spearman(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Spearman's rank correlation of every column (N, B) with the same of the other, (B,)."""
    one, other = (pd.DataFrame(values).rank().to_numpy() for values in (first, second))
    one, other = one - one.mean(0), other - other.mean(0)
    return (one * other).sum(0) / np.sqrt((one**2).sum(0) * (other**2).sum(0))


def _cells(part: pd.DataFrame) -> list[Cell]:
    (row,) = part.to_dict("records")
    measures = [Cell(f"{row[column]:.3g}") for column in MEASURES.values()]
    return [*measures, Cell(percent(row["auc_mean"]))]


def _together(own: pd.DataFrame) -> list[Row]:
    first = own.iloc[0]
    if pd.isna(first.get("discrepancy_rho")):
        return []
    cells = [Cell(f"Rank correlation with AUC, {first['methods']:.0f} methods")]
    for measure in MEASURES:
        numbers = [first[f"{measure}_rho{end}"] for end in ("", "_low", "_high")]
        value, low, high = (f"{one:.2f}".replace("-", "−") for one in numbers)
        cells.append(Cell(value, f"[{low}, {high}]"))
    return [Row((*cells, Cell("")))]
