"""Who is in the cohorts, and how sites differ before any training."""

import pandas as pd

from brio_core.reporting.catalogue import Given, output
from brio_core.reporting.cohorts import (
    ANY_REGION,
    CohortTables,
    read_cohorts,
    read_profiles,
    read_regions,
    recognition,
    region_counts,
    site_rows,
)
from brio_core.reporting.export import hidden_groups, is_vague
from brio_core.reporting.results import class_names, cohort_title, shared_class_names
from brio_core.reporting.table import (
    Cell,
    Row,
    Table,
    heading,
    number,
    percent,
    plural,
    with_spread,
)


@output(
    files=["inclusion", "participants"],
    page="cohort",
    title="Cohorts",
    caption="Subjects per site and class, frames, and who was excluded for which reason.",
)
def cohorts_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Subjects per site and class, frames, and who was excluded for which reason.

    One row per site, and one for each cohort.
    """
    cohorts = read_cohorts(given.files["inclusion"], given.files["participants"])
    rows = pd.concat([site_rows(cohort) for cohort in cohorts], ignore_index=True)
    lines = []
    for cohort in cohorts:
        if len(cohorts) > 1:
            lines.append(heading(cohort_title(given.datasets, cohort.name)))
        own = rows[rows["cohort"] == cohort.name]
        lines += [Row(_cohorts_cells(row)) for _, row in own.iloc[:-1].iterrows()]
        lines.append(Row(_cohorts_cells(own.iloc[-1], is_total=True)))
    negative, positive = shared_class_names(given.datasets, (cohort.name for cohort in cohorts))
    classes = (positive.capitalize(), negative.capitalize())
    table = given.table(
        ("Site", "Subjects", *classes, "TR (s)", "Frames", "Excluded", "Why"),
        lines,
        "Frames: mean ± standard deviation over kept subjects, after cleaning.",
        more_caption=" ".join(_cohorts_sentence(cohort, given.datasets) for cohort in cohorts),
        left=(0, 7),
    )
    return rows, table


def _cohorts_cells(row: pd.Series, is_total: bool = False) -> tuple[Cell, ...]:
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


def _cohorts_sentence(cohort: CohortTables, datasets: dict) -> str:
    candidates, kept = len(cohort.inclusion), len(cohort.participants)
    why = ", ".join(f"{kind} ({count})" for kind, count in cohort.reasons.items())
    return (
        f"{cohort_title(datasets, cohort.name)}: {kept:,} of "
        f"{plural(candidates, 'candidate subject')} from "
        f"{plural(cohort.participants['site'].nunique(), 'site')} are used; "
        + (f"{candidates - kept} are excluded: {why}." if why else "none is excluded.")
    )


MOST = 5


@output(
    files=["regions"],
    page="cohort",
    title="Regions without signal",
    caption="Where regions are dead. One that is dead at a single site tells the site.",
)
def regions_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Regions without signal, by site and class, and which of them the cohort goes without.

    One row per site that has a dead region; the file has every region, site and class.
    """
    cohorts = read_regions(given.files["regions"])
    lines = []
    for cohort, rows in cohorts.items():
        if len(cohorts) > 1:
            lines.append(heading(cohort_title(given.datasets, cohort)))
        for site, here in rows.groupby("site"):
            if here["dead"].any():
                lines.append(Row(_regions_cells(site, here)))
    negative, positive = shared_class_names(given.datasets, cohorts)
    table = given.table(
        ("Site", positive.capitalize(), negative.capitalize(), "Regions"),
        lines,
        "Subjects with a dead region, of all kept ones of the class; then the regions that are "
        f"dead most often ({MOST} at most), with the number of subjects.",
        more_caption=" ".join(_regions_sentence(*one, given.datasets) for one in cohorts.items()),
        left=(0, 3),
    )
    rows = [rows.assign(cohort=cohort) for cohort, rows in cohorts.items()]
    return pd.concat(rows, ignore_index=True), table


def _regions_cells(site: str, here: pd.DataFrame) -> tuple[Cell, ...]:
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


def _regions_sentence(cohort: str, rows: pd.DataFrame, datasets: dict) -> str:
    affected = rows[rows["region"] == ANY_REGION]
    every, kept = region_counts(rows)
    gone = ", ".join(rows.loc[rows["kept"] == "no", "region"].unique())
    return (
        f"{cohort_title(datasets, cohort)}: regions are dead in {affected['dead'].sum():,.0f} of "
        f"{plural(int(affected['subjects'].sum()), 'subject')}; {kept} of "
        f"{plural(every, 'region')} are used" + (f", left out: {gone}." if gone else ".")
    )


SITES_COLUMNS = (
    "Site", "Class", "Subjects", "Age", "Female (%)", "Motion (mm)", "Frames", "Minutes",
    "Mean FC", "Spread of FC", "Outliers", "Site identifiable (%)",
)  # fmt: skip


@output(
    files=["profiles"],
    page="cohort",
    title="Sites before any training",
    caption="Subjects and scans of every site, and whether connectivity tells the site.",
)
def sites_table(given: Given) -> tuple[pd.DataFrame, Table]:
    """Sites before any training: who was scanned, how, and what connectivity tells about the site.

    One row per cohort, site and class; the rows ``all`` are those of whole cohorts.
    """
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
                lines.append(Row(_sites_cells(rows[-1], name, site is None)))
    table = given.table(
        SITES_COLUMNS,
        lines,
        "Mean ± standard deviation over subjects. Motion: mean framewise displacement. Mean and "
        "spread of FC: over pairs of regions, in Fisher z. Outliers: subjects whose FC is unlike "
        "that of the others of their site, or on another level; they are kept. Site identifiable: "
        "share of subjects whose site a linear classifier finds from the FC of others. Groups of "
        "one person show their number only, and so do further ones that would give them away.",
        more_caption=" ".join(_sites_sentence(*one, given.datasets) for one in profiles.items()),
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


def _sites_cells(row: dict, label: str, is_total: bool) -> tuple[Cell, ...]:
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


def _sites_sentence(cohort: str, people: pd.DataFrame, datasets: dict) -> str:
    by_site, chance = recognition(people)
    return (
        f"{cohort_title(datasets, cohort)}: from FC alone a linear classifier tells the site of "
        f"{percent(by_site.mean())} % of subjects (mean over sites; chance {percent(chance)} %)."
    )
