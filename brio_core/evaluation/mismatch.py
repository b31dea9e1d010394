"""Do agreement between sites and stable predictions go together? Rates over many runs.

A run is one method, fold and seed, and a row of ``runs`` with the columns of the diagnostics of
folds. All rates lie between 0 and 1.
"""

import numpy as np
import pandas as pd


def discordance_rate(runs: pd.DataFrame) -> float:
    """R_discord: how often the run with smaller D_site has the larger predictive variation.

    Only runs of the same fold and seed are compared, and pairs with a tie do not count. NaN if
    there is no pair.
    """
    discordant = compared = 0
    for _, part in runs.groupby(["fold", "seed"]):
        first, second = np.triu_indices(len(part), 1)
        x, y = part[["site_discrepancy", "predictive_variation"]].to_numpy().T
        product = np.sign(x[first] - x[second]) * np.sign(y[first] - y[second])
        discordant += int((product < 0).sum())
        compared += int((product != 0).sum())
    return discordant / compared if compared else float("nan")


def mismatch_rates(runs: pd.DataFrame, tolerance: float) -> pd.DataFrame:
    """How often sites agree while predictions do not hold, for each variant in order.

    A run is a mismatch when its site discrepancy is below and its predictive variation above the
    median over all given runs. ``total`` is the share of these in a variant's runs. ``preserved``
    is the share of those that also keep their validation AUC: it is at most ``tolerance`` below
    the ``reference``, which is that of BRIO w/o QG with lambda = 0 in the same fold and seed.
    """
    x, y = runs["site_discrepancy"], runs["predictive_variation"]
    mismatch = (x < x.median()) & (y > y.median())
    loss = runs["reference"] - runs["validation_auc"]
    # AUCs are ratios of counts: a loss of exactly the tolerance must not fall to rounding.
    preserved = mismatch & (loss <= tolerance + 1e-9)
    shares = pd.DataFrame({"total": mismatch, "preserved": preserved})
    return shares.groupby(runs["variant"], sort=False).mean()
