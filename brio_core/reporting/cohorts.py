"""Read the files of cohorts: who is in them, who is not, block lengths and site profiles."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from brio_core.reporting.results import read_table
from brio_core.system.errors import BrioError
from brio_core.system.files import read_json

SHORTEST, LONGEST = 2, 30  # Eq. app_block_length_range
PROFILE_NUMBERS = (
    "label", "age", "male", "mean_fd", "tr", "frames", "fc_mean", "fc_sd", "typicality",
)  # fmt: skip
ANY_REGION = "any"  # in regions.tsv: subjects with at least one dead region
PROFILE_WORDS = ("subject", "site", "outlier", "recognised_as")


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

    @property
    def statistics(self) -> dict[str, float]:
        """What the paper's table of datasets says about a cohort, by the paper's names."""
        label = self.participants["label"]
        frames = self.inclusion.loc[self.inclusion["kept"] == "yes", "frames_after"]
        return {
            "samples": len(label),
            "patients": int((label == 1).sum()),
            "controls": int((label == 0).sum()),
            "sites": self.participants["site"].nunique(),
            "time_points_mean": frames.mean(),
            "time_points_sd": frames.std(ddof=1),
            "time_points_min": frames.min(),
            "time_points_max": frames.max(),
        }


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


def read_block_lengths(paths: Sequence[str | Path]) -> dict[tuple[str, str], pd.DataFrame]:
    """The folds of each cohort and protocol; ``seconds`` are NaN where the TR is unknown."""
    found = {}
    for path in paths:
        content = read_json(path, "cohort", "protocol", "folds")
        folds = pd.DataFrame(content["folds"], columns=["estimate", "block_length", "seconds"])
        if folds[["estimate", "block_length"]].isna().any(axis=None):
            raise BrioError(f"{path} lacks the estimate of a fold; delete it and run again")
        found[content["cohort"], content["protocol"]] = folds.astype({"seconds": float})
    return found


def block_lengths(folds: pd.DataFrame, scale: float) -> tuple[pd.Series, pd.Series]:
    """Frames and seconds of every fold at a multiple of its estimate."""
    # Half up, as in training.
    frames = np.floor(scale * folds["estimate"] + 0.5).clip(SHORTEST, LONGEST)
    return frames, frames * (folds["seconds"] / folds["block_length"])


def read_profiles(paths: Sequence[str | Path]) -> dict[str, pd.DataFrame]:
    """The site profile of each cohort, whose name is that of its folder."""
    return {
        Path(path).parent.name: read_table(path, PROFILE_WORDS, PROFILE_NUMBERS) for path in paths
    }


def read_regions(paths: Sequence[str | Path]) -> dict[str, pd.DataFrame]:
    """Which regions are dead where, by cohort, whose name is that of its folder."""
    words, numbers = ("region", "kept", "site"), ("label", "subjects", "dead")
    return {Path(path).parent.name: read_table(path, words, numbers) for path in paths}


def region_counts(rows: pd.DataFrame) -> tuple[int, int]:
    """Regions of the parcellation, and those that are used."""
    regions = rows[rows["region"] != ANY_REGION]
    _, regions = next(iter(regions.groupby(["site", "label"])))
    return len(regions), int((regions["kept"] == "yes").sum())


def recognition(people: pd.DataFrame) -> tuple[pd.Series, float]:
    """Share of each site's subjects whose site connectivity tells, and what chance would give."""
    asked = people[people["recognised_as"] != ""]
    by_site = (asked["recognised_as"] == asked["site"]).groupby(asked["site"]).mean()
    return by_site, 1 / max(len(by_site), 1)
