"""From the runs of one cohort and protocol to one row per variant, and to ensembles of variants."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from brio_core.cohorts.splits import read_split
from brio_core.evaluation import intervals, site_statistics
from brio_core.evaluation.confounds import Scored
from brio_core.evaluation.scores import Decision, Estimate, score_folds, usable
from brio_core.reporting import results
from brio_core.reporting.table import interval_columns
from brio_core.system.errors import BrioError

GROUP = "Ensembles"


class Variant(NamedTuple):
    """Test predictions of a variant: different logits (seeds, N) in the order of ``fold``."""

    metas: list[dict]
    fold: np.ndarray
    label: np.ndarray
    sites: int
    logits: np.ndarray
    decisions: list[dict[str, Decision]]

    @property
    def meta(self) -> dict:
        """That of the first seed."""
        return self.metas[0]

    def scored(self, covariates: dict[str, np.ndarray]) -> Scored:
        """The same with covariates of the subjects."""
        return Scored(self.fold, self.label, self.logits, covariates)

    def single(self) -> pd.DataFrame:
        """Scores of every seed alone, as means over folds: what another seed would change."""
        seeds = range(len(self.logits))
        scores = [
            score_folds(self.fold, self.label, self.logits[[one]], self.decisions[one : one + 1])
            for one in seeds
        ]
        return pd.DataFrame([usable(each).mean(numeric_only=True) for each in scores])


def by_variant(runs: list[results.Run]) -> list[Variant]:
    """The variants of runs, which must be of one cohort and protocol."""
    _check(runs)
    first = runs[0].test
    found = []
    for variant in dict.fromkeys(run.meta["variant"] for run in runs):
        seeds = [run for run in runs if run.meta["variant"] == variant]
        # The rows of every run in the order of the first.
        logits = [run.test.set_index("subject")["logit"].loc[first["subject"]] for run in seeds]
        # A deterministic method says the same with every seed, which is one result, not several.
        different = np.sort(np.unique(logits, axis=0, return_index=True)[1])
        tested = first["fold"].to_numpy(), first["label"].to_numpy(int), first["site"].nunique()
        metas = [run.meta for run in seeds]
        decisions = [decisions_of(metas[index]) for index in different]
        found.append(Variant(metas, *tested, np.stack(logits)[different], decisions))
    return found


def decisions_of(meta: dict) -> dict[str, Decision]:
    """What validation said about the logits of each fold; external code has said nothing."""
    return {
        fold["name"]: Decision(fold["threshold"], **fold["recalibration"])
        for fold in meta["folds"]
        if "threshold" in fold
    }


def summarise(
    folders: Sequence[str | Path],
    experiment: str,
    ensembles: dict[str, dict] | None = None,
    split: Path | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One row per variant, and one row per variant and fold, of one cohort and protocol.

    ``ensembles`` have a ``label`` and ``members``; one that lacks a member is left out. Where the
    file of a ``split`` is there, every run must test what it says.
    """
    runs = [results.read_run(folder) for folder in folders]
    for run in runs if split else ():
        _check_split(run, split)
    variants = by_variant(runs)
    variants += with_ensembles(variants[0], runs, ensembles or {})
    fold, label = variants[0].fold, variants[0].label
    words = (variants[0].meta["cohort"], variants[0].meta["protocol"])
    rows, folds = [], []
    for one in variants:
        logits = one.logits
        scores = score_folds(fold, label, logits, one.decisions)
        used = usable(scores)
        identity = {key: one.meta[key] for key in results.IDENTITY}
        row = {"experiment": experiment, **identity, "seeds": len(logits)}
        row |= {"rings": len({results.ring_of(meta) for meta in one.metas})}
        row |= {"folds": len(used), "left_out": len(scores) - len(used)}
        row |= {"subjects": len(label), "sites": one.sites}
        seeds = one.single().std()
        for score in (*results.SCORES, results.AT_THRESHOLD):
            row |= _mean(score, used[score])
            row[f"{score}_sd_seeds"] = seeds[score]
        share = intervals.averaging_share(label, logits, fold)
        variances = site_statistics.sampling_variances(used, share)
        new = intervals.prediction_interval(used["auc"], variances)
        row |= dict(zip(("auc_new_low", "auc_new_high"), new))
        row |= interval_columns("auc_sd_sampling", _spread(used, words, share))
        row |= interval_columns("pooled_auc", intervals.auc_interval(label, logits))
        rows.append(row | _cost(one.metas))
        folds.append(pd.DataFrame({**identity, **scores}))
    table = pd.DataFrame(rows)
    for column in ("epochs", "folds_together", "parameters"):
        table[column] = table[column].astype("Int64")
    return results.in_paper_order(table), results.in_paper_order(
        pd.concat(folds, ignore_index=True)
    )


def with_ensembles(
    like: Variant, runs: list[results.Run], ensembles: dict[str, dict]
) -> list[Variant]:
    """Ensembles of runs as variants, which have predicted the same subjects as another one."""
    found = []
    for name, about in ensembles.items():
        members = [
            [run for run in runs if run.meta["variant"] == member] for member in about["members"]
        ]
        if all(members):
            meta = {key: like.meta[key] for key in ("cohort", "protocol")}
            meta |= {"variant": name, "method": name, "label": about["label"], "group": GROUP}
            logits = ensemble_logits(members, runs[0].test["subject"])
            metas, nothing = [meta | {"folds": []}], [{}]
            found.append(like._replace(metas=metas, logits=logits[None], decisions=nothing))
    return found


def _mean(name: str, values: pd.Series) -> dict:
    """Mean over folds with its interval, and deviation."""
    mean, *ends = intervals.interval_over_sites(values)
    deviation = values.std(ddof=1)
    # Where all sites say the same, such as 1, they do not tell how sure that is.
    low, high = np.clip(ends, 0, 1) if deviation > 0 else (np.nan, np.nan)
    row = {f"{name}_mean": mean, f"{name}_sd": deviation}
    return row | {f"{name}_sites_low": low, f"{name}_sites_high": high}


def _spread(used: pd.DataFrame, words: tuple, share: float) -> Estimate:
    """How much sites of these sizes would differ by sampling alone."""
    positives, negatives = used["positives"], used["n"] - used["positives"]
    return site_statistics.sampling_spread(used["auc"].mean(), positives, negatives, words, share)


def _cost(metas: list[dict]) -> dict:
    """Time of the fastest seed, the highest memory of all, size of the model, hardware.

    Other seeds may have shared the machine with other work, or compiled kernels first.
    """
    took = [meta["seconds"] for meta in metas if meta.get("seconds") is not None]
    folds = [[fold.get("seconds_per_epoch") for fold in meta["folds"]] for meta in metas]
    per_epoch = [float(np.mean(one)) for one in folds if one and None not in one]
    memory = [meta["peak_memory_bytes"] for meta in metas if meta.get("peak_memory_bytes")]
    return {
        "epochs": metas[0].get("hyperparameters", {}).get("epochs"),
        "seconds": min(took, default=None),
        "folds_together": metas[0].get("group_size"),
        "seconds_per_epoch": min(per_epoch, default=None),
        "peak_memory_gb": max(memory) / 1e9 if memory else None,
        "parameters": metas[0].get("parameters"),
        "device": "; ".join(dict.fromkeys(str(meta.get("device", "")) for meta in metas)),
    }


def _check(runs: list[results.Run]) -> None:
    """Results may stand in one table only if they come from the same folds."""
    reference, seen, rings = _tested(runs[0]), set(), {}
    for run in runs:
        # Rings have splits of their own, which test the same.
        alike = rings.setdefault(results.ring_of(run.meta), run)
        for key, first in (("cohort", runs[0]), ("protocol", runs[0]), ("split_checksum", alike)):
            if run.meta[key] != first.meta[key]:
                raise BrioError(
                    f"{run.folder} has the {key} {run.meta[key]!r}, but {first.folder} has "
                    f"{first.meta[key]!r}; delete the older of the two and run again"
                )
        key = (run.meta["variant"], run.meta["seed"], results.ring_of(run.meta))
        if key in seen:
            raise BrioError(f"{run.folder} repeats variant {key[0]} with seed {key[1]}")
        seen.add(key)
        if not _tested(run).equals(reference):
            raise BrioError(
                f"{run.folder}/predictions.csv does not test the same subjects in the same folds "
                f"as {runs[0].folder}/predictions.csv; delete {run.folder} and run again"
            )


def _check_split(run: results.Run, path: Path) -> None:
    """Compare a run with the split of its ring, which runs that were copied here may lack."""
    ring = results.ring_of(run.meta)
    file = path.with_stem(f"{path.stem}-ring-{ring}") if ring else path
    if not file.exists():
        return
    split = read_split(file)
    if run.meta["split_checksum"] != split["checksum"]:
        raise BrioError(
            f"{run.folder} has another split_checksum than the split; delete it, run again"
        )
    wanted = {
        (split["subjects"][row], split["site"][row], fold["name"], split["label"][row])
        for fold in split["folds"]
        for row in fold["test"]
    }
    table = run.test.astype({"label": int})
    found = set(zip(*(table[name] for name in ("subject", "site", "fold", "label"))))
    if wanted != found:
        subject = min(wanted ^ found)[0]
        raise BrioError(
            f"{run.folder}/predictions.csv does not test subject {subject} as the split says; "
            f"delete {run.folder} and run again"
        )


def _tested(run: results.Run) -> pd.DataFrame:
    columns = ["subject", "site", "fold", "label"]
    return run.test[columns].sort_values("subject", ignore_index=True)


def ensemble_logits(
    members: Sequence[Sequence[results.Run]], subjects: Sequence[str]
) -> np.ndarray:
    """Logits (N,) of ``subjects`` by members, each of which has one run per seed.

    Scores of a run are standardised fold by fold, by mean and deviation of its validation
    predictions: those are of source sites, so a test subject's score depends on no other one.
    Every member weighs the same, and so does every seed of a member. The mean is given the mean
    level and spread of the members, so that zero stays between the classes.
    """
    parts = [[_standardised(run, subjects) for run in runs] for runs in members]
    standard, level, spread = np.mean([np.mean(runs, axis=0) for runs in parts], axis=0)
    return standard * spread + level


def _standardised(
    run: results.Run, subjects: Sequence[str]
) -> tuple[pd.Series, pd.Series, pd.Series]:
    """Standardised test scores of a run, and the level and spread that were taken out of them."""
    path = run.folder / "predictions.csv"
    table = results.read_table(path, results.PREDICTION_COLUMNS, ("label", "logit"))
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
