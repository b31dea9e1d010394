"""Sites before any training: who was scanned, how, and what connectivity tells about the site."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from brio_core.reporting.results import class_names, cohort_title, read_table
from brio_core.reporting.tables import Cell, Row, Table, percent

NUMBERS = ("label", "age", "male", "mean_fd", "tr", "frames", "fc_mean", "fc_sd", "typicality")
WORDS = ("subject", "site", "outlier", "recognised_as")


def read_profiles(paths: Sequence[str | Path]) -> dict[str, pd.DataFrame]:
    """The site profile of each cohort, whose name is that of its folder."""
    return {Path(path).parent.name: read_table(path, WORDS, NUMBERS) for path in paths}


def profile_rows(profiles: dict[str, pd.DataFrame]) -> pd.DataFrame:
    """One row per cohort, site and class; the rows ``all`` are those of whole cohorts."""
    rows = []
    for cohort, people in profiles.items():
        sites = [*sorted(people["site"].unique()), "all"]
        for site in sites:
            here = people if site == "all" else people[people["site"] == site]
            for label in (1, 0):
                one = here[here["label"] == label]
                rows.append({"cohort": cohort, "site": site, "label": label, **_numbers(one)})
    return pd.DataFrame(rows)


def _numbers(people: pd.DataFrame) -> dict:
    asked = people[people["recognised_as"] != ""]
    right = asked["recognised_as"] == asked["site"]
    found = {"subjects": len(people)}
    for name in ("age", "mean_fd", "frames", "fc_mean", "fc_sd"):
        found |= {f"{name}_mean": people[name].mean(), f"{name}_sd": people[name].std()}
    minutes = people["frames"] * people["tr"] / 60
    return found | {
        "female": 1 - people["male"].mean(),
        "minutes": minutes.mean(),
        "outliers": int((people["outlier"] != "").sum()),
        "recognised": right.mean() if len(asked) else float("nan"),
    }


def recognition(people: pd.DataFrame) -> tuple[float, float]:
    """How well the site is told from connectivity: mean over sites, and what chance would give."""
    asked = people[people["recognised_as"] != ""]
    by_site = (asked["recognised_as"] == asked["site"]).groupby(asked["site"]).mean()
    return float(by_site.mean()), 1 / max(len(by_site), 1)


def profile_table(rows: pd.DataFrame, profiles: dict, words: dict, datasets: dict) -> Table:
    """Two lines per site, one for each class."""
    lines = []
    for cohort in profiles:
        negative, positive = class_names(datasets.get(cohort, {}))
        names = {1: positive, 0: negative}
        own = rows[rows["cohort"] == cohort]
        if len(profiles) > 1:
            lines.append(Row((Cell(cohort_title(datasets, cohort)),), heading=True))
        lines += [Row(_cells(row, names)) for _, row in own.iterrows()]
    sentences = " ".join(_sentence(name, people, datasets) for name, people in profiles.items())
    return Table(
        title=words["title"],
        caption=f"{words['caption']} {sentences}".strip(),
        columns=(
            "Site", "Class", "Subjects", "Age", "Female (%)", "Motion (mm)", "Frames", "Minutes",
            "Mean FC", "Spread of FC", "Outliers", "Site told (%)",
        ),
        rows=tuple(lines),
        notes=(
            "Mean ± standard deviation over subjects. Motion: mean framewise displacement. Mean "
            "and spread of FC: over pairs of regions, in Fisher z. Outliers: subjects whose FC is "
            "unlike that of the others of their site, or on another level; they are kept. Site "
            "told: share of subjects whose site a linear classifier finds from the FC of others.",
        ),
        section="cohort",
        left=(0, 1),
    )  # fmt: skip


def _cells(row: pd.Series, names: dict[int, str]) -> tuple[Cell, ...]:
    is_total = row["site"] == "all"
    return (
        Cell("All sites" if is_total else row["site"], bold=is_total),
        Cell(names[row["label"]]),
        Cell(f"{row['subjects']:,}", bold=is_total),
        _mean(row, "age", 1),
        Cell(percent(row["female"])),
        _mean(row, "mean_fd", 2),
        _mean(row, "frames", 0),
        Cell("–" if pd.isna(row["minutes"]) else f"{row['minutes']:.1f}"),
        _mean(row, "fc_mean", 3),
        _mean(row, "fc_sd", 3),
        Cell(f"{row['outliers']}"),
        Cell(percent(row["recognised"])),
    )


def _mean(row: pd.Series, name: str, digits: int) -> Cell:
    mean, sd = row[f"{name}_mean"], row[f"{name}_sd"]
    if pd.isna(mean):
        return Cell("–")
    return Cell(f"{mean:.{digits}f}", "" if pd.isna(sd) else f"± {sd:.{digits}f}")


def _sentence(cohort: str, people: pd.DataFrame, datasets: dict) -> str:
    share, chance = recognition(people)
    return (
        f"{cohort_title(datasets, cohort)}: from FC alone a linear classifier tells the site of "
        f"{percent(share)} % of subjects (mean over sites; chance {percent(chance)} %)."
    )
