"""How AUC falls when test scans are cut short, while models stay as they are."""

import math
from collections.abc import Sequence

import pandas as pd

from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.catalogue import REFERENCE
from brio_core.reporting.diagnostics import Diagnostics, read_diagnostics
from brio_core.reporting.given import Given
from brio_core.reporting.table import NONE, Cell, Table, percent

OUTPUT = {
    "files": ["diagnostics"],
    "page": "diagnostics",
    "title": "Shorter scans",
    "caption": "Test scans cut to a part of their frames, with models as they were trained.",
}


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """AUC of whole scans, and its change in percentage points for every fraction."""
    rows = scan_length_rows(read_diagnostics(given.files["diagnostics"]))
    fractions = [value for value in rows["fraction"].unique() if value < 1]
    columns = ("Method", "Whole scan", *(f"{100 * value:.0f} %" for value in fractions))

    def cells(own: pd.DataFrame) -> list[Cell]:
        own = own.set_index("fraction")
        found = [Cell(percent(own.loc[1.0, "auc_mean"]))]
        for mean, error in own.reindex(fractions)[["change_mean", "change_se"]].to_numpy():
            change = percent(mean).replace("-", "−")
            found.append(Cell(NONE) if math.isnan(mean) else Cell(change, f"± {percent(error)}"))
        return found

    table = given.table(
        columns,
        by_cohort(rows, given, columns, cells),
        "AUC (%) on held-out sites with whole scans, and its change in percentage points when "
        "connectivity is estimated from a part of the frames, averaged over windows at the "
        "beginning, middle and end. ± is the standard error over sites of the change within a "
        "site. A part that is too short for a method leaves the site out. Models are those of the "
        "main experiment.",
    )
    return rows, table


def compared(one: Diagnostics) -> list[str]:
    """The paper's three models: BRIO, w/o RS, and w/o QG with the alignment strength of BRIO."""
    if REFERENCE not in one.variants:
        return []
    strength = one.variants[REFERENCE]["hyperparameters"]["lambda_env"]
    wanted = [
        variant
        for variant, about in one.variants.items()
        if about["hyperparameters"].get("without") in ("RS", "QG")
        and about["hyperparameters"]["lambda_env"] == strength
    ]
    return [REFERENCE, *wanted]


def scan_length_rows(found: Sequence[Diagnostics]) -> pd.DataFrame:
    """One row per cohort, variant and fraction of the frames, the whole scan first.

    The three windows of a scan are averaged, then seeds; means and standard errors are over
    held-out sites, and those of the change over differences within a site.
    """
    rows = []
    for one in found:
        keys = ["variant", "fold", "seed"]
        whole = one.table("folds").set_index(keys)["test_auc"]
        cut = one.table("scan-length").groupby([*keys, "fraction"])["test_auc"].mean().unstack()
        for variant in one.variants:
            parts = {1.0: whole[variant]}
            # A method that needs longer scans has no such rows, at some sites or at all.
            if variant in cut.index:
                parts |= {fraction: auc.dropna() for fraction, auc in cut.loc[variant].items()}
            for fraction in sorted(parts, reverse=True):
                auc = parts[fraction]
                if auc.empty:
                    continue
                change = (auc - whole[variant]).groupby("fold").mean().dropna()
                row = one.identity(variant) | {"fraction": fraction, "folds": len(change)}
                row["auc_mean"] = auc.groupby("fold").mean().mean()
                rows.append(row | {"change_mean": change.mean(), "change_se": change.sem()})
    return pd.DataFrame(rows)
