"""What the seeds of a method say together: the mean of their probabilities."""

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from brio_core.evaluation.scores import score_folds, usable
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.given import Given
from brio_core.reporting.results import IDENTITY, SCORES, in_paper_order, ordered, read_run
from brio_core.reporting.summary import by_variant
from brio_core.reporting.table import Cell, Table, percent, with_sd

OUTPUT = {
    "files": ["runs"],
    "page": "comparison",
    "title": "Several seeds together",
    "caption": "What another seed would change, and what all seeds say together.",
}

LIMITS = np.finfo(float)
COLUMNS = (
    "Method", "Seeds", "AUC, one seed", "AUC, all seeds", "ACC, one seed", "ACC, all seeds",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, protocol and variant: single seeds, and all of them together."""
    runs = [read_run(folder) for folder in given.files["runs"]]
    places = [(run.meta["cohort"], run.meta["protocol"]) for run in runs]
    groups = [[run for run, own in zip(runs, places) if own == place] for place in ordered(places)]
    rows = []
    for one in (variant for group in groups for variant in by_variant(group)):
        single = [usable(score_folds(one.fold, one.label, logits)) for logits in one.logits]
        row = {**{key: one.meta[key] for key in IDENTITY}, "seeds": len(one.logits)}
        # Sure probabilities stay below one and above zero, so that their logits are finite.
        mean = np.clip(expit(one.logits).mean(0), LIMITS.tiny, 1 - LIMITS.epsneg)
        together = usable(score_folds(one.fold, one.label, logit(mean)))
        several = len(one.logits) > 1
        for score in SCORES:
            means = [scores[score].mean() for scores in single]
            row[f"{score}_single"] = float(np.mean(means))
            row[f"{score}_single_sd"] = float(np.std(means, ddof=1)) if several else None
            row[f"{score}_together"] = together[score].mean() if several else None
        rows.append(row)
    table = in_paper_order(pd.DataFrame(rows))
    printed = given.table(
        COLUMNS,
        # With single seeds there is nothing to say, and pages leave the table out.
        by_cohort(table, given, COLUMNS, _cells) if (table["seeds"] > 1).any() else (),
        "One seed: the mean over sites of one seed's score, then mean and standard deviation over "
        "seeds, which is what another seed would change. All seeds: scores of the mean of their "
        "probabilities. An ensemble needs one training per seed; compare it with other ensembles.",
    )
    return table, printed


def _cells(own: pd.DataFrame) -> list[Cell]:
    row = own.iloc[0]
    cells = [Cell(str(row["seeds"]))]
    for score in SCORES:
        mean, sd = row[f"{score}_single"], row[f"{score}_single_sd"]
        cells.append(Cell(percent(mean)) if pd.isna(sd) else with_sd(mean, sd))
        cells.append(Cell(percent(row[f"{score}_together"])))
    return cells
