"""Sites before any training: who was scanned, how, and what connectivity tells about the site."""

import pandas as pd

from brio_core.reporting.cohorts import read_profiles, recognition
from brio_core.reporting.export import hidden_groups, is_vague
from brio_core.reporting.given import Given
from brio_core.reporting.results import class_names, cohort_title
from brio_core.reporting.table import Cell, Row, Table, heading, number, percent, with_spread

OUTPUT = {
    "files": ["profiles"],
    "page": "cohort",
    "title": "Sites before any training",
    "caption": "Subjects and scans of every site, and whether connectivity tells the site.",
}

COLUMNS = (
    "Site", "Class", "Subjects", "Age", "Female (%)", "Motion (mm)", "Frames", "Minutes",
    "Mean FC", "Spread of FC", "Outliers", "Site identifiable (%)",
)  # fmt: skip


def make(given: Given) -> tuple[pd.DataFrame, Table]:
    """One row per cohort, site and class; the rows ``all`` are those of whole cohorts."""
    profiles = read_profiles(given.files["profiles"])
    rows, lines = [], []
    for cohort, people in profiles.items():
        negative, positive = class_names(given.datasets.get(cohort, {}))
        if len(profiles) > 1:
            lines.append(heading(cohort_title(given.datasets, cohort)))
        hidden = _hidden(people)
        for site in [*sorted(people["site"].unique()), None]:
            here = people if site is None else people[people["site"] == site]
            for label, name in ((1, positive), (0, negative)):
                numbers = _numbers(here[here["label"] == label])
                if (site, label) in hidden:
                    numbers = dict.fromkeys(numbers, float("nan")) | {
                        "subjects": numbers["subjects"]
                    }
                rows.append({"cohort": cohort, "site": site or "all", "label": label, **numbers})
                lines.append(Row(_cells(rows[-1], name, site is None)))
    table = given.table(
        COLUMNS,
        lines,
        "Mean ± standard deviation over subjects. Motion: mean framewise displacement. Mean and "
        "spread of FC: over pairs of regions, in Fisher z. Outliers: subjects whose FC is unlike "
        "that of the others of their site, or on another level; they are kept. Site identifiable: "
        "share of subjects whose site a linear classifier finds from the FC of others. Groups of "
        "one person show their number only, and so do further ones that would give them away.",
        more_caption=" ".join(_sentence(*one, given.datasets) for one in profiles.items()),
        left=(0, 1),
    )
    return pd.DataFrame(rows), table


def _hidden(people: pd.DataFrame) -> set[tuple[str | None, int]]:
    """Groups of one person, whose means would be that person, and what would give them away."""
    found = set()
    for label in (0, 1):
        counts = people[people["label"] == label].groupby("site").size().to_frame()
        hidden = hidden_groups(counts, 2, 1)
        found |= {(site, label) for site in counts.index[hidden]}
        if hidden.any() and hidden.all() and not is_vague(counts, 2, 1):
            found.add((None, label))
    return found


def _numbers(people: pd.DataFrame) -> dict:
    asked = people[people["recognised_as"] != ""]
    right = asked["recognised_as"] == asked["site"]
    found = {"subjects": len(people)}
    # The mean of what is known of one person only is that person's.
    people = people.drop(columns=people.columns[people.count() < 2]).reindex(columns=people.columns)
    for name in ("age", "mean_fd", "frames", "fc_mean", "fc_sd"):
        found |= {f"{name}_mean": people[name].mean(), f"{name}_sd": people[name].std()}
    minutes = people["frames"] * people["tr"] / 60
    return found | {
        "female": 1 - people["male"].mean(),
        "minutes": minutes.mean(),
        "outliers": int((people["outlier"] != "").sum()),
        "recognised": right.mean() if len(asked) else float("nan"),
    }


def _cells(row: dict, label: str, is_total: bool) -> tuple[Cell, ...]:
    def mean(name: str, digits: int) -> Cell:
        return with_spread(row[f"{name}_mean"], row[f"{name}_sd"], f".{digits}f")

    return (
        Cell("All sites" if is_total else row["site"], bold=is_total),
        Cell(label),
        Cell(f"{row['subjects']:,}", bold=is_total),
        mean("age", 1),
        Cell(percent(row["female"])),
        mean("mean_fd", 2),
        mean("frames", 0),
        Cell(number(row["minutes"], ".1f")),
        mean("fc_mean", 3),
        mean("fc_sd", 3),
        Cell(number(row["outliers"], ".0f")),
        Cell(percent(row["recognised"])),
    )


def _sentence(cohort: str, people: pd.DataFrame, datasets: dict) -> str:
    by_site, chance = recognition(people)
    return (
        f"{cohort_title(datasets, cohort)}: from FC alone a linear classifier tells the site of "
        f"{percent(by_site.mean())} % of subjects (mean over sites; chance {percent(chance)} %)."
    )
