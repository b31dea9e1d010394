"""Do agreement between sites and stable predictions go together? Rates over many runs.

A run is one method, fold and seed, and a row of ``runs`` with the columns of the diagnostics of
folds. All rates lie between 0 and 1.
"""

import numpy as np
import pandas as pd

AXES = ("site_discrepancy", "predictive_variation")


def discordance_rate(runs: pd.DataFrame) -> float:
    """R_discord: how often the run with smaller D_site has the larger predictive variation.

    Only runs of the same fold and seed are compared, and pairs with a tie do not count. NaN if
    there is no pair.
    """
    discordant = compared = 0
    for _, part in runs.groupby(["fold", "seed"]):
        first, second = np.triu_indices(len(part), 1)
        x, y = part[[*AXES]].to_numpy().T
        product = np.sign(x[first] - x[second]) * np.sign(y[first] - y[second])
        discordant += int((product < 0).sum())
        compared += int((product != 0).sum())
    return discordant / compared if compared else float("nan")


def mismatches(
    runs: pd.DataFrame, tolerance: float, medians_of: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Whether sites agree while predictions do not hold, for each run.

    ``total``: site discrepancy is below and predictive variation above the median over the runs, or
    over ``medians_of``. ``preserved``: the run also keeps its validation AUC, which is at most
    ``tolerance`` below the ``reference``: BRIO w/o QG with lambda = 0 in the same fold and seed.
    """
    middle = (runs if medians_of is None else medians_of)[[*AXES]].median()
    low, high = (runs[name] for name in AXES)
    total = (low < middle.iloc[0]) & (high > middle.iloc[1])
    loss = runs["reference"] - runs["validation_auc"]
    # AUCs are ratios of counts: a loss of exactly the tolerance must not fall to rounding.
    return pd.DataFrame({"total": total, "preserved": total & (loss <= tolerance + 1e-9)})
