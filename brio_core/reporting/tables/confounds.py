"""What is left of an AUC without age, sex, motion and scan length."""

from collections import defaultdict
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from brio_core.cohorts import MATCHED
from brio_core.cohorts.subsets import CALLIPER, FEWEST_PAIRS
from brio_core.evaluation.confounds import (
    COVARIATES,
    FEWEST,
    Scored,
    adjust,
    over_sites,
    site_aucs,
    subgroups,
    thirds,
)
from brio_core.evaluation.intervals import interval_over_sites
from brio_core.reporting import results
from brio_core.reporting.blocks import by_cohort
from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.cohorts import read_profiles
from brio_core.reporting.summary import by_variant
from brio_core.reporting.table import (
    NONE,
    Cell,
    Table,
    interval_cell,
    interval_columns,
    number,
    percent,
    plural,
    with_interval,
)

NAMES = {"age": "age", "male": "sex", "mean_fd": "motion", "frames": "scan length"}
SUBGROUPS = {
    "Sex": {"women": "Women", "men": "Men"},
    "Thirds by age": {"young": "Youngest", "middle": "Middle", "old": "Oldest"},
    "Thirds by motion": {"low": "Lowest", "medium": "Middle", "high": "Highest"},
}
CONFOUNDS_COLUMNS = ("Method", "AUC, same subjects", "Adjusted AUC", "Change", "Explained")
CONFOUNDS_ENDS = ("auc_mean", "auc_low", "auc_high")
# A mean over fewer sites says nothing about the next.
ENOUGH = 5
NUMBERS = (*CONFOUNDS_ENDS, "sites", "subjects", "change", "change_low", "change_high", "explained")
CONFOUNDS_EXPLAINED = (
    "In %, the mean over test sites with Student's 95 % interval over sites. Adjusted AUC: that of "
    "Janes and Pepe (2009). A score is compared with what controls of the same covariates have, by "
    "a linear model of all controls with a mean per site. The first column is the AUC of the same "
    "subjects. Explained: share of the variance of scores within sites that covariates explain, "
    "adjusted for their number; by chance it is 0. Subgroups count at sites with "
    f"{FEWEST} or more subjects of each class in them, and are printed from {ENOUGH} sites on."
)


@output(
    files=["runs", "profiles"],
    page="comparison",
    title="Confounds",
    caption="AUC adjusted for age, sex, motion and scan length, and AUC of subgroups.",
)
def confounds_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """AUC adjusted for age, sex, motion and scan length, and AUC of subgroups, on unseen sites.

    One row per variant and group of subjects: ``all``, ``adjusted``, and the subgroups.
    """
    profiles = read_profiles(given.files["profiles"])
    found, notes = [], []
    for (cohort, _), runs in results.read_places(given.files["runs"]).items():
        people = profiles[cohort].set_index("subject").reindex(runs[0].test["subject"])
        covariates = {name: people[name].to_numpy(float) for name in COVARIATES}
        rows = [
            {key: one.meta[key] for key in results.IDENTITY} | row
            for one in by_variant(runs)
            for row in _rows(one.scored(covariates))
        ]
        if rows:
            title = results.cohort_title(given.datasets, cohort)
            notes.append(_confounds_note(title, rows, covariates))
            found += rows
    rows = results.in_paper_order(
        pd.DataFrame(found, columns=[*results.IDENTITY, "group_of_subjects", *NUMBERS])
    )
    enough = set(rows.loc[rows["sites"] >= ENOUGH, "group_of_subjects"])
    columns, shown = list(CONFOUNDS_COLUMNS), []
    spans = [("", 1), ("Whole sites", len(columns) - 1)]
    for heading, names in SUBGROUPS.items():
        own = [name for name in names if name in enough]
        shown += own
        columns += [names[name] for name in own]
        spans += [(heading, len(own))] if own else []
    cells = partial(_confounds_cells, shown=shown)
    lines = by_cohort(rows, replace(given, planned={}), columns, cells)
    text = notes or ["No cohort has covariates that differ within its sites."]
    return rows, given.table(columns, lines, CONFOUNDS_EXPLAINED, *text, spans=tuple(spans))


def _rows(scored: Scored) -> list[dict]:
    found = adjust(scored)
    if found is None:
        return []
    whole = interval_columns("change", found.change)
    whole |= {"explained": found.explained, "used": found.used, "unknown": found.unknown}
    groups = [("all", found.plain, {}), ("adjusted", found.adjusted, whole)]
    groups += [(word, group, {}) for _, word, group in subgroups(scored)]
    return [
        {"group_of_subjects": name, "sites": group.sites, "subjects": group.subjects}
        | dict(zip(CONFOUNDS_ENDS, group.auc))
        | more
        for name, group, more in groups
    ]


def _confounds_cells(own: pd.DataFrame, shown: list[str]) -> list[Cell]:
    by_group = own.set_index("group_of_subjects")
    adjusted = by_group.loc["adjusted"]
    cells = [
        with_interval(*by_group.loc[name, list(CONFOUNDS_ENDS)]) for name in ("all", "adjusted")
    ]
    cells += [interval_cell(adjusted, "change"), Cell(percent(adjusted["explained"]))]
    for row in (by_group.loc[name] for name in shown):
        cells.append(
            with_interval(*row[list(CONFOUNDS_ENDS)]) if row["sites"] >= ENOUGH else Cell(NONE)
        )
    return cells


def _confounds_note(title: str, rows: list[dict], covariates: dict[str, np.ndarray]) -> str:
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


# Who trains, and who is tested.
KINDS = {
    "all": "All, all tested", "tested": "All, pairs tested", "matched": "Pairs, pairs tested",
}  # fmt: skip
MATCHED_COLUMNS = ("Method", *KINDS.values(), "Change by testing pairs")
MATCHED_EXPLAINED = (
    "AUC in %, the mean over test sites with Student's 95 % interval over sites. Columns say who "
    "trains and who is tested. The change has the same models and the same sites in both. Training "
    "on pairs also means training on fewer subjects. Pairs differ by at most "
    f"{CALLIPER:g} deviations of log mean FD; sites with fewer than {FEWEST_PAIRS} pairs are left "
    "out of the last columns."
)


@output(files=["runs", "profiles"], page="comparison")
def motion_matched_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """What is left of an AUC where patients and controls of a site moved alike.

    One row per cohort and variant.
    """
    profiles = read_profiles(given.files["profiles"])
    places = results.read_places(given.files["runs"])
    rows, notes = [], []
    for (cohort, protocol), matched in places.items():
        if protocol != MATCHED:
            continue
        subjects = matched[0].test["subject"].tolist()
        plain, tested = {}, np.zeros(0, bool)
        if whole := places.get((cohort, "loso")):
            plain = {one.meta["variant"]: one.scored({}) for one in by_variant(whole)}
            tested = np.isin(whole[0].test["subject"], subjects)
        for one in by_variant(matched):
            row = {key: one.meta[key] for key in results.IDENTITY} | {"protocol": "loso"}
            rows.append(row | _scores(plain.get(one.meta["variant"]), one.scored({}), tested))
        title = results.cohort_title(given.datasets, cohort)
        notes.append(_matched_note(title, profiles[cohort], subjects))
    table = results.in_paper_order(pd.DataFrame(rows))
    lines = by_cohort(table, replace(given, planned={}), MATCHED_COLUMNS, _matched_cells)
    return table, given.table(MATCHED_COLUMNS, lines, MATCHED_EXPLAINED, *notes)


def _scores(plain: Scored | None, pairs: Scored, tested: np.ndarray) -> dict:
    """AUC of every kind, and what testing pairs alone changes."""
    kinds = {"matched": pairs}
    if plain:
        kinds |= {"all": plain, "tested": plain.of(tested)}
    row, aucs = {}, {name: site_aucs(scored) for name, scored in kinds.items()}
    for name, scored in kinds.items():
        found = over_sites(scored, aucs[name])
        row |= interval_columns(f"{name}_auc", found.auc)
        row |= {f"{name}_subjects": found.subjects, f"{name}_sites": found.sites}
    if plain:
        changes = [value - aucs["all"][site] for site, value in aucs["tested"].items()]
        row |= interval_columns("change", interval_over_sites(changes))
    return row


def _matched_cells(own: pd.DataFrame) -> list[Cell]:
    # Where nobody trained with all subjects, those columns are missing.
    row = defaultdict(lambda: np.nan, own.iloc[0])
    return [interval_cell(row, name) for name in (*(f"{kind}_auc" for kind in KINDS), "change")]


def _matched_note(title: str, people: pd.DataFrame, subjects: list[str]) -> str:
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
