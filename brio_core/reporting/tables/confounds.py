"""AUC adjusted for age, sex, motion and scan length, and AUC of subgroups, on unseen sites."""

from dataclasses import replace

import numpy as np
import pandas as pd

from brio_core.evaluation.confounds import COVARIATES, FEWEST, Scored, adjust, subgroups, thirds
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.cohorts import read_profiles
from brio_core.reporting.given import Given
from brio_core.reporting.results import IDENTITY, cohort_title, in_paper_order, ordered, read_run
from brio_core.reporting.summary import by_variant
from brio_core.reporting.table import NONE, Cell, Table, number, plural, with_interval

OUTPUT = {
    "files": ["runs", "profiles"],
    "page": "comparison",
    "title": "Confounds",
    "caption": "AUC adjusted for age, sex, motion and scan length, and AUC of subgroups.",
}

NAMES = {"age": "age", "male": "sex", "mean_fd": "motion", "frames": "scan length"}
SUBGROUPS = {
    "Sex": {"women": "Women", "men": "Men"},
    "Thirds by age": {"young": "Youngest", "middle": "Middle", "old": "Oldest"},
    "Thirds by motion": {"low": "Lowest", "medium": "Middle", "high": "Highest"},
}
COLUMNS = ("Method", "AUC, same subjects", "Adjusted AUC", "Change", "Explained")
ENDS = ("auc_mean", "auc_low", "auc_high")
CHANGE = ("change", "change_low", "change_high")
# A mean over fewer sites says nothing about the next.
ENOUGH = 5
NUMBERS = (*ENDS, "sites", "subjects", *CHANGE, "explained")
EXPLAINED = (
    "In %, the mean over test sites with Student's 95 % interval over sites. Adjusted AUC: that of "
    "Janes and Pepe (2009). A score is compared with what controls of the same covariates have, by "
    "a linear model of all controls with a mean per site. The first column is the AUC of the same "
    "subjects. Explained: share of the variance of scores within sites that covariates explain, "
    "adjusted for their number; by chance it is 0. Subgroups count at sites with "
    f"{FEWEST} or more subjects of each class in them, and are printed from {ENOUGH} sites on."
)


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per variant and group of subjects: ``all``, ``adjusted``, and the subgroups."""
    profiles = read_profiles(given.files["profiles"])
    runs = [read_run(folder) for folder in given.files["runs"]]
    places = [(run.meta["cohort"], run.meta["protocol"]) for run in runs]
    found, notes = [], []
    for place in ordered(places):
        own = [run for run, other in zip(runs, places) if other == place]
        people = profiles[place[0]].set_index("subject").reindex(own[0].test["subject"])
        covariates = {name: people[name].to_numpy(float) for name in COVARIATES}
        rows = [
            {key: one.meta[key] for key in IDENTITY} | row
            for one in by_variant(own)
            for row in _rows(Scored(one.fold, one.label, one.logits, covariates))
        ]
        if rows:
            notes.append(_note(cohort_title(given.datasets, place[0]), rows, covariates))
            found += rows
    rows = in_paper_order(pd.DataFrame(found, columns=[*IDENTITY, "group_of_subjects", *NUMBERS]))
    enough = set(rows.loc[rows["sites"] >= ENOUGH, "group_of_subjects"])
    shown = {
        heading: {name: title for name, title in names.items() if name in enough}
        for heading, names in SUBGROUPS.items()
    }
    columns = [*COLUMNS, *(title for names in shown.values() for title in names.values())]
    spans = (("", 1), ("Whole sites", len(COLUMNS) - 1))
    spans += tuple((heading, len(names)) for heading, names in shown.items() if names)

    def cells(own: pd.DataFrame) -> list[Cell]:
        return _cells(own, [name for names in shown.values() for name in names])

    lines = by_cohort(rows, replace(given, planned={}), columns, cells)
    text = notes or ["No cohort has covariates that differ within its sites."]
    return rows, given.table(columns, lines, EXPLAINED, *text, spans=spans)


def _rows(scored: Scored) -> list[dict]:
    found = adjust(scored)
    if found is None:
        return []
    whole = {"explained": found.explained, **dict(zip(CHANGE, found.change))}
    whole |= {"used": found.used, "unknown": found.unknown}
    groups = [("all", found.plain, {}), ("adjusted", found.adjusted, whole)]
    groups += [(word, group, {}) for _, word, group in subgroups(scored)]
    return [
        {"group_of_subjects": name, "sites": group.sites, "subjects": group.subjects}
        | dict(zip(ENDS, group.auc))
        | more
        for name, group, more in groups
    ]


def _cells(own: pd.DataFrame, shown: list[str]) -> list[Cell]:
    by_group = own.set_index("group_of_subjects")
    adjusted = by_group.loc["adjusted"]
    cells = [with_interval(*by_group.loc[name, list(ENDS)]) for name in ("all", "adjusted")]
    cells += [with_interval(*adjusted[list(CHANGE)])]
    cells += [Cell(number(100 * adjusted["explained"], ".1f"))]
    for row in (by_group.loc[name] for name in shown):
        cells.append(with_interval(*row[list(ENDS)]) if row["sites"] >= ENOUGH else Cell(NONE))
    return cells


def _note(title: str, rows: list[dict], covariates: dict[str, np.ndarray]) -> str:
    """Who counts; it is the same for all variants."""
    first = {row["group_of_subjects"]: row for row in reversed(rows)}
    adjusted = first["adjusted"]
    used = ", ".join(NAMES[name] for name in adjusted["used"])
    missing = [f"{NAMES[name]} of {count}" for name, count in adjusted["unknown"].items() if count]
    counts = [
        f"{'motion ' if name in ('low', 'medium', 'high') else ''}{name} "
        f"{plural(first[name]['subjects'], 'subject')} of {plural(first[name]['sites'], 'site')}"
        for names in SUBGROUPS.values()
        for name in names
        if first[name]["sites"] >= ENOUGH
    ]
    age, motion = (thirds(covariates[name]) for name in ("age", "mean_fd"))
    return (
        f"{title}: adjusted for {used}; {plural(adjusted['subjects'], 'subject')} of "
        f"{plural(adjusted['sites'], 'site')}. Unknown: {', '.join(missing) or 'nothing'}. Thirds "
        f"end at {number(age[0], '.1f')} and {number(age[1], '.1f')} years, and at "
        f"{number(motion[0], '.2f')} and {number(motion[1], '.2f')} mm. "
        f"Subgroups: {'; '.join(counts) or 'none at enough sites'}."
    )
