"""Subjects per site and class, frames, and who was excluded for which reason."""

import pandas as pd

from brio_core.reporting.cohorts import CohortTables, read_cohorts, site_rows
from brio_core.reporting.given import Given
from brio_core.reporting.results import class_names, cohort_title
from brio_core.reporting.table import Cell, Row, Table, heading, number, plural, with_spread

OUTPUT = {
    "files": ["inclusion", "participants"],
    "page": "cohort",
    "title": "Cohorts",
    "caption": "Subjects per site and class, frames, and who was excluded for which reason.",
}


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per site, and one for each cohort."""
    cohorts = read_cohorts(given.files["inclusion"], given.files["participants"])
    rows = pd.concat([site_rows(cohort) for cohort in cohorts], ignore_index=True)
    lines = []
    for cohort in cohorts:
        if len(cohorts) > 1:
            lines.append(heading(cohort_title(given.datasets, cohort.name)))
        own = rows[rows["cohort"] == cohort.name]
        lines += [Row(_cells(row)) for _, row in own.iloc[:-1].iterrows()]
        lines.append(Row(_cells(own.iloc[-1], is_total=True)))
    names = {class_names(given.datasets.get(cohort.name, {})) for cohort in cohorts}
    negative, positive = names.pop() if len(names) == 1 else ("Class 0", "Class 1")
    classes = (positive.capitalize(), negative.capitalize())
    table = given.table(
        ("Site", "Subjects", *classes, "TR (s)", "Frames", "Excluded", "Why"),
        lines,
        "Frames: mean ± standard deviation over kept subjects, after cleaning.",
        more_caption=" ".join(_sentence(cohort, given.datasets) for cohort in cohorts),
        left=(0, 7),
    )
    return rows, table


def _cells(row: pd.Series, is_total: bool = False) -> tuple[Cell, ...]:
    numbers = [row[key] for key in ("subjects", "positives", "negatives")]
    low, high = (number(row[key], ".3g") for key in ("tr_min", "tr_max"))
    return (
        Cell("All sites" if is_total else row["site"], bold=is_total),
        *(Cell(f"{one:,}", bold=is_total) for one in numbers),
        Cell(low if low == high else f"{low}–{high}"),
        with_spread(row["frames_mean"], row["frames_sd"], ".1f"),
        Cell(f"{row['excluded']}", bold=is_total),
        Cell("" if is_total else row["reasons"]),
    )


def _sentence(cohort: CohortTables, datasets: dict) -> str:
    candidates, kept = len(cohort.inclusion), len(cohort.participants)
    why = ", ".join(f"{kind} ({count})" for kind, count in cohort.reasons.items())
    return (
        f"{cohort_title(datasets, cohort.name)}: {kept:,} of "
        f"{plural(candidates, 'candidate subject')} from "
        f"{plural(cohort.participants['site'].nunique(), 'site')} are used; "
        + (f"{candidates - kept} are excluded: {why}." if why else "none is excluded.")
    )
