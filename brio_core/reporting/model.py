"""A bundle of a model that was trained on all sites, and what to expect of it at a new site."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.cohorts.cohort import Cohort, read_participants
from brio_core.cohorts.stores import input_checksums
from brio_core.cohorts.tables import read_table
from brio_core.evaluation.confounds import auc_over_sites, subgroups
from brio_core.evaluation.intervals import (
    averaging_share,
    interval_over_sites,
    prediction_interval,
)
from brio_core.evaluation.scores import (
    Estimate,
    brier,
    calibration_in_the_large,
    calibration_slope,
    score_folds,
    usable,
)
from brio_core.evaluation.site_distance import describe
from brio_core.evaluation.site_statistics import sampling_variances
from brio_core.reporting.results import Run, read_run
from brio_core.reporting.summary import by_variant
from brio_core.training.bundle import Bundle
from brio_core.training.final import Wanted, final_decision
from brio_core.training.problem import Problem
from brio_core.training.results import FoldResult, software

# What a bundle repeats of the dataset's YAML: how its scans were read.
DATASET = ("cohort", "source", "rois", "label", "columns", "inclusion")


def make_bundle(
    wanted: Wanted, problem: Problem, result: FoldResult, runs: Sequence[Run], words: dict
) -> Bundle:
    """What was trained, on what, and what to expect of it.

    ``words`` are what the dataset's YAML tells to readers: title and task.
    """
    cohort, (fold,) = problem.data.cohort, problem.data.folds
    rows, sites = fold.train, cohort.site[fold.train]
    asked = problem.trial.stop is not None
    table = read_participants(wanted.cohort_dir / "participants.tsv")
    people = dict(zip(cohort.subjects, cohort.covariates.astype(float)))
    names = ("age", "male", "mean_fd")
    covariates = {subject: dict(zip(names, values)) for subject, values in people.items()}
    training = describe(lambda some: cohort.fc[rows[some]], sites)
    dataset = cohort.series.provenance.get("dataset", {})
    inputs = input_checksums(wanted.cohort_dir)
    about = {
        "variant": wanted.variant,
        **{key: wanted.params[key] for key in ("method", "label")},
        "hyperparameters": dict(vars(problem.trial.hyperparameters)),
        "seed": wanted.seed,
        "n_sites": problem.data.n_sites(fold),
        "chosen": {
            "epoch_or_point": result.selected_epoch,
            "by": "the leave-one-site-out folds" if asked else "an inner leave-one-site-out",
        },
        "rois": _rois(wanted.cohort_dir / "regions.tsv", list(cohort.series.rois.names)),
        "dataset": {key: dataset[key] for key in DATASET if key in dataset}
        | {key: words[key] for key in ("title", "task") if key in words},
        "cohort": cohort.name,
        "training": _training(cohort, rows, table.iloc[rows]),
        "decision": final_decision(wanted, problem, result),
        "block_length": fold.block_length,
        "expectation": expectation(runs, covariates, wanted.without),
        "inputs": inputs,
        "code": wanted.code,
        "versions": software(),
    }
    state = {name: value.cpu() for name, value in result.state.items()}
    return Bundle(about, state, training._asdict())


def _rois(path: Path, names: list[str]) -> dict:
    """Names of the regions of the series, and of the whole atlas with the places of the former."""
    every, kept = names, list(range(len(names)))
    if path.exists():
        table = read_table(path)
        rows = table[table["kept"] != "n/a"]
        first = (rows[["site", "label"]] == rows[["site", "label"]].iloc[0]).all(axis=1)
        group = rows[first]
        every = group["region"].tolist()
        kept = np.flatnonzero(group["kept"] == "yes").tolist()
    return {"names": names, "all": every, "kept": kept}


def _training(cohort: Cohort, rows: np.ndarray, table: pd.DataFrame) -> dict:
    """The training cohort in counts, by site."""
    frames, (age, male, _) = cohort.series.frames[rows], cohort.covariates[rows].T
    table = table.assign(frames=frames, tr=pd.to_numeric(table["tr"], errors="coerce"))
    age = age[np.isfinite(age)]
    return {
        "subjects": len(table),
        "positives": int(table["label"].sum()),
        "men": int((male == 1).sum()),
        "women": int((male == 0).sum()),
        "age": [float(one) for one in np.percentile(age, (5, 50, 95))] if len(age) else None,
        "frames": [float(one) for one in np.percentile(frames, (5, 50, 95))],
        "sites": [
            {
                "site": str(name),
                "subjects": len(own),
                "positives": int(own["label"].sum()),
                "tr": sorted({float(one) for one in own["tr"].dropna()}),
                "frames": float(np.median(own["frames"])),
            }
            for name, own in table.groupby("site")
        ],
    }


# What is taken at the threshold and told with its interval over sites.
AT_THRESHOLD = {
    "sensitivity": "sensitivity_threshold",
    "specificity": "specificity_threshold",
    "accuracy": "acc_threshold",
}


def read_left_out(folders: Sequence[str | Path]) -> tuple[list[Run], tuple[np.ndarray, np.ndarray]]:
    """The runs, and logits and labels of the first seed's left-out subjects."""
    runs = [read_run(folder) for folder in folders]
    test = runs[0].test
    return runs, (test["logit"].to_numpy(float, copy=True), test["label"].to_numpy(int, copy=True))


def expectation(
    runs: Sequence[Run], covariates: dict[str, dict[str, float]], without: Sequence[str] = ()
) -> dict:
    """Numbers for the card, as plain values; what is unknown is None.

    ``covariates`` has age, ``male`` and mean_fd by subject. Sites ``without`` do not count.
    """
    runs = [replace(run, test=run.test[~run.test["site"].isin(without)]) for run in runs]
    (one,) = by_variant(runs)
    scores = usable(score_folds(one.fold, one.label, one.logits, one.decisions))
    variances = sampling_variances(scores, averaging_share(one.label, one.logits, one.fold))
    new = prediction_interval(scores["auc"], variances)
    people = [covariates.get(subject, {}) for subject in runs[0].test["subject"]]
    known = {
        name: np.array([own.get(name, math.nan) for own in people], float)
        for name in ("age", "male", "mean_fd")
    }
    return {
        "subjects": len(one.label),
        "sites": len(scores),
        "seeds": len(one.logits),
        "auc": _plain(auc_over_sites(scores["auc"].tolist())),
        "new_site": {"low": _number(new[0]), "high": _number(new[1])},
        "at_threshold": {
            name: _plain(_share(scores[column].to_numpy()))
            for name, column in AT_THRESHOLD.items()
        },
        "calibration": _calibration(one),
        "by_site": [
            {"site": row.fold, "subjects": int(row.n), "auc": _number(row.auc),
             "variance": _number(variance)}
            for row, variance in zip(scores.itertuples(), variances)
        ],
        "subgroups": [
            {"by": by, "name": name, "auc": _plain(group.auc), "sites": group.sites,
             "subjects": group.subjects}
            for by, name, group in subgroups(one.scored(known))
            if by in ("male", "age")
        ],
    }  # fmt: skip


def _calibration(one) -> dict:
    """Of all left-out subjects together, with the recalibration of their folds; mean over seeds."""
    found = []
    for logits, decisions in zip(one.logits, one.decisions):
        chosen = [decisions[name] for name in one.fold]
        scaled = np.array([how.slope * v + how.intercept for v, how in zip(logits, chosen)])
        measures = (calibration_slope, calibration_in_the_large, brier)
        found.append([measure(one.label, scaled) for measure in measures])
    return dict(zip(("slope", "in_the_large", "brier"), map(_number, np.mean(found, axis=0))))


def _share(values: np.ndarray) -> Estimate:
    mean, low, high = interval_over_sites(values[~np.isnan(values)])
    return Estimate(mean, max(low, 0.0), min(high, 1.0))


def _plain(estimate: Estimate) -> dict:
    return {key: _number(value) for key, value in estimate._asdict().items()}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
