"""What the seeds of a method say together: the mean of their probabilities."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import expit, logit

from brio_core.evaluation.scores import score_folds
from brio_core.reporting.blocks import blocks
from brio_core.reporting.results import in_paper_order, ordered, read_run
from brio_core.reporting.summary import IDENTITY, by_variant
from brio_core.reporting.tables import Cell, Table, percent, with_sd


def ensemble_rows(folders: Sequence[str | Path]) -> pd.DataFrame:
    """One row per cohort, protocol and variant: single seeds, and all of them together."""
    runs = [read_run(folder) for folder in folders]
    pairs = [(run.meta["cohort"], run.meta["protocol"]) for run in runs]
    groups = [[run for run, own in zip(runs, pairs) if own == pair] for pair in ordered(pairs)]
    rows = []
    for one in (variant for group in groups for variant in by_variant(group)):
        single = [score_folds(one.fold, one.label, logits[None]) for logits in one.logits]
        row = {**{key: one.meta[key] for key in IDENTITY}, "seeds": len(one.logits)}
        for score in ("auc", "acc"):
            means = [scores.mean_and_sd(score)[0] for scores in single]
            row[f"{score}_single"] = float(np.mean(means))
            row[f"{score}_single_sd"] = float(np.std(means, ddof=1)) if len(means) > 1 else None
        if len(one.logits) > 1:
            together = score_folds(one.fold, one.label, _mean_probability(one.logits)[None])
            row |= {f"{score}_together": together.mean_and_sd(score)[0] for score in ("auc", "acc")}
        rows.append(row)
    columns = [*IDENTITY, "seeds", "auc_single", "auc_single_sd", "auc_together",
               "acc_single", "acc_single_sd", "acc_together"]  # fmt: skip
    return in_paper_order(pd.DataFrame(rows).reindex(columns=columns))


def _mean_probability(logits: np.ndarray) -> np.ndarray:
    """The logit of the mean probability; sure ones stay finite."""
    tiny = np.finfo(float).tiny
    return logit(np.clip(expit(logits).mean(0), tiny, 1 - np.finfo(float).epsneg))


def ensemble_table(rows: pd.DataFrame, experiment: dict, datasets: dict) -> Table:
    """What :func:`ensemble_rows` found, cohorts one below the other."""
    return Table(
        title=experiment.get("title", "Several seeds together"),
        caption=experiment.get("caption", ""),
        columns=("Method", "Seeds", "AUC, one seed", "AUC, all seeds", "ACC, one seed",
                 "ACC, all seeds"),
        rows=blocks(rows, datasets, _cells),
        notes=(
            "One seed: the mean over sites of one seed's score, then mean and standard deviation "
            "over seeds, which is what another seed would change. All seeds: scores of the mean of "
            "their probabilities. It costs as many trainings; compare it with others of its kind.",
        ),
        section="comparison",
    )  # fmt: skip


def _cells(row: pd.Series) -> list[Cell]:
    cells = [Cell(str(row["seeds"]))]
    for score in ("auc", "acc"):
        mean, sd = row[f"{score}_single"], row[f"{score}_single_sd"]
        cells.append(Cell(percent(mean)) if pd.isna(sd) else with_sd(mean, sd))
        cells.append(Cell(percent(row[f"{score}_together"])))
    return cells
