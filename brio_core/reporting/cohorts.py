"""Who is in a cohort and who is not: counts from participants.tsv and inclusion.tsv."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from brio_core.reporting.results import class_names, cohort_title, read_table
from brio_core.reporting.tables import Cell, Row, Table, plural
from brio_core.system.errors import BrioError


@dataclass(frozen=True)
class CohortTables:
    """The two tables of one cohort."""

    name: str
    participants: pd.DataFrame
    inclusion: pd.DataFrame

    @property
    def reasons(self) -> pd.Series:
        """Excluded subjects per kind of reason (the words before its colon), most common first."""
        kinds = self.inclusion.loc[self.inclusion["kept"] == "no", "reason"].str.split(":").str[0]
        return kinds.value_counts().sort_index().sort_values(ascending=False, kind="stable")


def read_cohorts(inclusion: Sequence[str], participants: Sequence[str]) -> list[CohortTables]:
    """Pair the files of each cohort by their folder, whose name is the cohort's."""
    if [Path(path).parent for path in inclusion] != [Path(path).parent for path in participants]:
        raise BrioError("--inclusion and --participants list different cohorts or another order")
    cohorts = []
    for kept, everyone in zip(participants, inclusion):
        people = read_table(kept, ("subject", "site"), ("label", "tr"))
        rows = read_table(everyone, ("subject", "site", "kept", "reason"), ("frames_after",))
        cohorts.append(CohortTables(Path(kept).parent.name, people, rows))
    return cohorts


def site_rows(cohort: CohortTables) -> pd.DataFrame:
    """One row per site, and ``all`` for the whole cohort."""
    rows = [_row(cohort, name) for name in sorted(cohort.inclusion["site"].unique())]
    return pd.DataFrame([*rows, _row(cohort, None)])


def _row(cohort: CohortTables, site: str | None) -> dict:
    people, candidates = cohort.participants, cohort.inclusion
    if site is not None:
        people, candidates = people[people["site"] == site], candidates[candidates["site"] == site]
    kept = candidates["kept"] == "yes"
    frames = candidates.loc[kept, "frames_after"]
    reasons = CohortTables(cohort.name, people, candidates).reasons
    return {
        "cohort": cohort.name,
        "site": "all" if site is None else site,
        "subjects": len(people),
        "negatives": int((people["label"] == 0).sum()),
        "positives": int((people["label"] == 1).sum()),
        "frames_mean": frames.mean(),
        "frames_sd": frames.std(ddof=1),
        "tr_min": people["tr"].min(),
        "tr_max": people["tr"].max(),
        "excluded": int((~kept).sum()),
        "reasons": "; ".join(f"{kind} ({count})" for kind, count in reasons.items()),
    }


def cohort_table(cohorts: Sequence[CohortTables], rows: pd.DataFrame, datasets: dict) -> Table:
    """Subjects per site and class, frames, and exclusions; ``rows`` from :func:`site_rows`."""
    lines = []
    for cohort in cohorts:
        if len(cohorts) > 1:
            lines.append(Row((Cell(cohort_title(datasets, cohort.name)),), heading=True))
        own = rows[rows["cohort"] == cohort.name]
        lines += [Row(_cells(row)) for _, row in own.iloc[:-1].iterrows()]
        lines.append(Row(_cells(own.iloc[-1], is_total=True)))
    names = {class_names(datasets.get(cohort.name, {})) for cohort in cohorts}
    negative, positive = names.pop() if len(names) == 1 else ("Class 0", "Class 1")
    return Table(
        title="Cohort" if len(cohorts) == 1 else "Cohorts",
        caption=" ".join(_sentence(cohort, datasets) for cohort in cohorts),
        columns=(
            "Site", "Subjects", positive.capitalize(), negative.capitalize(), "TR (s)", "Frames",
            "Excluded", "Why",
        ),
        rows=tuple(lines),
        notes=("Frames: mean ± standard deviation over kept subjects, after cleaning.",),
        section="cohort",
        left=(0, 7),
    )  # fmt: skip


def _cells(row: pd.Series, is_total: bool = False) -> tuple[Cell, ...]:
    numbers = [row[key] for key in ("subjects", "positives", "negatives")]
    low, high = (_short(row[key]) for key in ("tr_min", "tr_max"))
    spread = "" if pd.isna(row["frames_sd"]) else f"± {row['frames_sd']:.1f}"
    frames = "–" if pd.isna(row["frames_mean"]) else f"{row['frames_mean']:.1f}"
    return (
        Cell("All sites" if is_total else row["site"], bold=is_total),
        *(Cell(f"{number:,}", bold=is_total) for number in numbers),
        Cell(low if low == high else f"{low}–{high}"),
        Cell(frames, spread),
        Cell(f"{row['excluded']}", bold=is_total),
        Cell("" if is_total else row["reasons"]),
    )


def _short(seconds: float) -> str:
    return "–" if pd.isna(seconds) else f"{seconds:.3g}"


def _sentence(cohort: CohortTables, datasets: dict) -> str:
    candidates, kept = len(cohort.inclusion), len(cohort.participants)
    why = ", ".join(f"{kind} ({count})" for kind, count in cohort.reasons.items())
    return (
        f"{cohort_title(datasets, cohort.name)}: {kept:,} of "
        f"{plural(candidates, 'candidate subject')} from "
        f"{plural(cohort.participants['site'].nunique(), 'site')} are used; "
        + (f"{candidates - kept} are excluded: {why}." if why else "none is excluded.")
    )
