"""Do agreement between sites and stable predictions go together? Rates over many runs.

A run is one method, fold and seed. All rates lie between 0 and 1.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np


def discordance_rate(
    site_discrepancy: Sequence[float],
    predictive_variation: Sequence[float],
    run: Sequence[Hashable],
) -> float:
    """R_discord: how often the run with smaller D_site has the larger predictive variation.

    Parameters
    ----------
    site_discrepancy, predictive_variation : (N,)
        One value per method, fold and seed.
    run : (N,)
        The fold and seed; only methods that share it are compared.

    Returns
    -------
    float
        Share of discordant pairs among pairs without a tie; NaN if there is none.
    """
    x, y = np.asarray(site_discrepancy, float), np.asarray(predictive_variation, float)
    members: dict[Hashable, list[int]] = {}
    for index, key in enumerate(run):
        members.setdefault(key, []).append(index)
    discordant = compared = 0
    for rows in members.values():
        first, second = np.triu_indices(len(rows), 1)
        product = np.sign(x[rows][first] - x[rows][second])
        product = product * np.sign(y[rows][first] - y[rows][second])
        discordant += int((product < 0).sum())
        compared += int((product != 0).sum())
    return discordant / compared if compared else float("nan")


class MismatchRates(NamedTuple):
    """Shares of a setting's runs."""

    total: float
    preserved: float
    """Mismatches whose validation AUC is kept, again over all runs."""


def mismatch_rates(
    site_discrepancy: Sequence[float],
    predictive_variation: Sequence[float],
    validation_auc: Sequence[float],
    reference_auc: Sequence[float],
    setting: Sequence[Hashable],
    tolerance: float = 0.02,
) -> dict[Hashable, MismatchRates]:
    """How often sites agree while predictions do not hold, for each setting.

    A run is a mismatch when its site discrepancy is below and its predictive variation above the
    median over all given runs.

    Parameters
    ----------
    site_discrepancy, predictive_variation, validation_auc : (N,)
        One value per setting, fold and seed.
    reference_auc : (N,)
        Validation AUC of BRIO w/o QG with lambda = 0 in the same fold and seed; AUC is preserved
        when it is at most ``tolerance`` below this.
    setting : (N,)
        What the rates are given for, in order of appearance.
    """
    x, y = np.asarray(site_discrepancy, float), np.asarray(predictive_variation, float)
    mismatch = (x < np.median(x)) & (y > np.median(y))
    loss = np.asarray(reference_auc, float) - np.asarray(validation_auc, float)
    # AUCs are ratios of counts: a loss of exactly the tolerance must not fall to rounding.
    preserved = mismatch & (loss <= tolerance + 1e-9)
    own = {name: np.array([one == name for one in setting]) for name in dict.fromkeys(setting)}
    return {
        name: MismatchRates(float(mismatch[rows].mean()), float(preserved[rows].mean()))
        for name, rows in own.items()
    }
