"""What is left of an AUC where patients and controls of a site moved alike."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from brio_core.cohorts import MATCHED
from brio_core.cohorts.subsets import CALLIPER, FEWEST_PAIRS
from brio_core.evaluation.confounds import Scored, over_sites, site_aucs
from brio_core.evaluation.intervals import interval_over_sites
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.cohorts import read_profiles
from brio_core.reporting.given import Given
from brio_core.reporting.results import IDENTITY, Run, cohort_title, in_paper_order, read_run
from brio_core.reporting.summary import by_variant
from brio_core.reporting.table import Cell, Table, number, plural, with_interval

OUTPUT = {"files": ["runs", "profiles"], "page": "comparison"}

# Who trains, and who is tested.
KINDS = {
    "all": "All, all tested", "tested": "All, pairs tested", "matched": "Pairs, pairs tested",
}  # fmt: skip
COLUMNS = ("Method", *KINDS.values(), "Change by testing pairs")
ENDS = ("", "_low", "_high")
EXPLAINED = (
    "AUC in %, the mean over test sites with Student's 95 % interval over sites. Columns say who "
    "trains and who is tested. The change has the same models and the same sites in both. Training "
    "on pairs also means training on fewer subjects. Pairs differ by at most "
    f"{CALLIPER:g} deviations of log mean FD; sites with fewer than {FEWEST_PAIRS} pairs are left "
    "out of the last columns."
)


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort and variant."""
    profiles = read_profiles(given.files["profiles"])
    runs = [read_run(folder) for folder in given.files["runs"]]
    rows, notes = [], []
    for cohort in dict.fromkeys(run.meta["cohort"] for run in runs):
        own = [run for run in runs if run.meta["cohort"] == cohort]
        matched = [run for run in own if run.meta["protocol"] == MATCHED]
        if not matched:
            continue
        subjects = matched[0].test["subject"].tolist()
        whole = [run for run in own if run.meta["protocol"] != MATCHED]
        tested = np.isin(whole[0].test["subject"], subjects) if whole else np.zeros(0, bool)
        plain = _by_variant(whole)
        for variant, (meta, pairs) in _by_variant(matched).items():
            row = {key: meta[key] for key in IDENTITY} | {"protocol": "loso"}
            rows.append(row | _scores(plain.get(variant), pairs, tested))
        notes.append(_note(cohort_title(given.datasets, cohort), profiles[cohort], subjects))
    table = in_paper_order(pd.DataFrame(rows))
    lines = by_cohort(table, replace(given, planned={}), COLUMNS, _cells)
    return table, given.table(COLUMNS, lines, EXPLAINED, *notes)


def _by_variant(runs: Sequence[Run]) -> dict[str, tuple[dict, Scored]]:
    found = by_variant(list(runs)) if runs else []
    return {
        one.meta["variant"]: (one.meta, Scored(one.fold, one.label, one.logits, {}))
        for one in found
    }


def _scores(plain: tuple[dict, Scored] | None, pairs: Scored, tested: np.ndarray) -> dict:
    """AUC of every kind, and what testing pairs alone changes."""
    kinds = {"matched": pairs}
    if plain:
        kinds |= {"all": plain[1], "tested": plain[1].of(tested)}
    row, aucs = {}, {name: site_aucs(scored) for name, scored in kinds.items()}
    for name, scored in kinds.items():
        found = over_sites(scored, aucs[name])
        row |= {f"{name}_auc{end}": value for end, value in zip(ENDS, found.auc)}
        row |= {f"{name}_subjects": found.subjects, f"{name}_sites": found.sites}
    if plain:
        changes = [value - aucs["all"][site] for site, value in aucs["tested"].items()]
        row |= {f"change{end}": one for end, one in zip(ENDS, interval_over_sites(changes))}
    return row


def _cells(own: pd.DataFrame) -> list[Cell]:
    row = own.iloc[0]
    names = (*(f"{kind}_auc" for kind in KINDS), "change")
    return [with_interval(*(row.get(f"{name}{end}", np.nan) for end in ENDS)) for name in names]


def _note(title: str, people: pd.DataFrame, subjects: list[str]) -> str:
    """How many pairs there are, and how far apart classes are before and after."""
    pairs = people[people["subject"].isin(subjects)]
    before, after = (_difference(part) for part in (people, pairs))
    unknown = int((~(people["mean_fd"] > 0)).sum())
    return (
        f"{title}: {plural(len(pairs) // 2, 'pair')} of {plural(pairs['site'].nunique(), 'site')}, "
        f"from {plural(len(people), 'subject')} of {plural(people['site'].nunique(), 'site')}; "
        f"{unknown or 'none'} without mean FD. Patients minus controls within sites, in deviations "
        f"of log mean FD: {number(before, '+.2f')} before, {number(after, '+.2f')} after."
    )


def _difference(people: pd.DataFrame) -> float:
    """Patients minus controls in log mean FD within sites, in deviations within site and class."""
    known = people[people["mean_fd"] > 0]
    motion, place = np.log(known["mean_fd"]), [known["site"], known["label"]]
    deviation = (motion - motion.groupby(place).transform("mean")).std()
    means = motion.groupby(place).mean().unstack()
    return float((means[1] - means[0]).mean() / deviation)
