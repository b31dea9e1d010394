"""Regions without signal, by site and class, and which of them the cohort goes without."""

import pandas as pd

from brio_core.reporting.cohorts import ANY_REGION, read_regions, region_counts
from brio_core.reporting.given import Given
from brio_core.reporting.results import class_names, cohort_title
from brio_core.reporting.table import Cell, Row, Table, heading, plural

OUTPUT = {
    "files": ["regions"],
    "page": "cohort",
    "title": "Regions without signal",
    "caption": "Where regions are dead. One that is dead at a single site tells the site.",
}
MOST = 5


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per site that has a dead region; the file has every region, site and class."""
    cohorts = read_regions(given.files["regions"])
    lines = []
    for cohort, rows in cohorts.items():
        if len(cohorts) > 1:
            lines.append(heading(cohort_title(given.datasets, cohort)))
        for site, here in rows.groupby("site"):
            if here["dead"].any():
                lines.append(Row(_cells(site, here)))
    names = {class_names(given.datasets.get(cohort, {})) for cohort in cohorts}
    negative, positive = names.pop() if len(names) == 1 else ("Class 0", "Class 1")
    table = given.table(
        ("Site", positive.capitalize(), negative.capitalize(), "Regions"),
        lines,
        "Subjects with a dead region, of all kept ones of the class; then the regions that are "
        f"dead most often ({MOST} at most), with the number of subjects.",
        more_caption=" ".join(_sentence(*one, given.datasets) for one in cohorts.items()),
        left=(0, 3),
    )
    rows = [rows.assign(cohort=cohort) for cohort, rows in cohorts.items()]
    return pd.concat(rows, ignore_index=True), table


def _cells(site: str, here: pd.DataFrame) -> tuple[Cell, ...]:
    affected = here[here["region"] == ANY_REGION].set_index("label")
    counts = here[here["region"] != ANY_REGION].groupby("region", sort=False)["dead"].sum()
    most = counts[counts > 0].sort_values(ascending=False, kind="stable")
    words = [f"{region} ({count:.0f})" for region, count in most.head(MOST).items()]
    more = [f"{len(most) - MOST} more"] if len(most) > MOST else []
    pairs = [affected.loc[label, ["dead", "subjects"]] for label in (1, 0)]
    return (
        Cell(site),
        *(Cell(f"{dead:.0f} of {subjects:.0f}") for dead, subjects in pairs),
        Cell(", ".join([*words, *more])),
    )


def _sentence(cohort: str, rows: pd.DataFrame, datasets: dict) -> str:
    affected = rows[rows["region"] == ANY_REGION]
    every, kept = region_counts(rows)
    gone = ", ".join(rows.loc[rows["kept"] == "no", "region"].unique())
    return (
        f"{cohort_title(datasets, cohort)}: regions are dead in {affected['dead'].sum():,.0f} of "
        f"{plural(int(affected['subjects'].sum()), 'subject')}; {kept} of "
        f"{plural(every, 'region')} are used" + (f", left out: {gone}." if gone else ".")
    )
