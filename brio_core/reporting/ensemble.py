"""Several variants and all their seeds as one row: the mean of their standardised scores.

Scores of a run are standardised fold by fold, by mean and deviation of its validation predictions:
those are of source sites, so a test subject's score depends on no other test subject.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from brio_core.reporting.results import PREDICTION_COLUMNS, Run, read_table
from brio_core.system.errors import BrioError

GROUP = "Ensembles"


def ensemble_logits(members: Sequence[Sequence[Run]], subjects: Sequence[str]) -> np.ndarray:
    """Logits (N,) of ``subjects`` by members, each of which has one run per seed.

    Every member weighs the same, and so does every seed of a member. The mean is given the mean
    level and spread of the members, so that zero stays between the classes.
    """
    parts = [[_scored(run, subjects) for run in runs] for runs in members]
    standard, level, spread = np.mean([np.mean(runs, axis=0) for runs in parts], axis=0)
    return standard * spread + level


def _scored(run: Run, subjects: Sequence[str]) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Standardised test scores of a run, and the level and spread that were taken out of them."""
    path = run.folder / "predictions.csv"
    table = read_table(path, PREDICTION_COLUMNS, ("label", "logit"))
    validation = table[table["split"] == "validation"].groupby("fold")["logit"]
    test = run.test.set_index("subject").loc[list(subjects)]
    level = test["fold"].map(validation.mean())
    # Where all validation subjects have one score, there is no spread to divide by.
    spread = test["fold"].map(validation.std(ddof=0)).replace(0.0, 1.0)
    if level.isna().any():
        fold = test["fold"][level.isna()].iloc[0]
        raise BrioError(
            f"{path} has no validation rows of fold {fold!r}, by which an ensemble standardises "
            "scores; take its variant out of 'ensembles'"
        )
    return (test["logit"] - level) / spread, level, spread
