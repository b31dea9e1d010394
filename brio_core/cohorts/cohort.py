"""A cohort on disk and in memory: series.h5, fc.h5, participants.tsv."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brio_core.cohorts.stores import Series, read_fc, read_series
from brio_core.cohorts.tables import SEXES, covariate, read_own_table
from brio_core.system.errors import BrioError
from brio_core.system.rows import Rows

PARTICIPANT_COLUMNS = (
    "subject", "site", "label", "age", "sex", "mean_fd", "tr", "group", "source",
)  # fmt: skip


def read_participants(path: str | Path):
    """participants.tsv with integer labels."""
    table = read_own_table(path, PARTICIPANT_COLUMNS)
    cut_off = ~table["label"].isin(["0", "1"])
    # A whole table ends with a line break.
    cut_off.iloc[-1:] |= Path(path).read_bytes()[-1:] != b"\n"
    if cut_off.any():
        raise BrioError(
            f"{path} is damaged at subject {table['subject'][cut_off].iloc[0]}; delete it and run "
            "the workflow again"
        )
    table["label"] = table["label"].astype(int)
    return table


@dataclass(frozen=True)
class Cohort:
    """All subjects of a cohort, for the trainer and the diagnostics."""

    name: str
    subjects: tuple[str, ...]
    site: np.ndarray
    fc: np.ndarray | Rows
    series: Series
    covariates: np.ndarray

    @classmethod
    def load(cls, folder: str | Path) -> "Cohort":
        """Read participants.tsv, series.h5 and fc.h5 of one folder and check that they agree."""
        folder = Path(folder)
        table = read_participants(folder / "participants.tsv")
        series = read_series(folder / "series.h5")
        fc_subjects, fc = read_fc(folder / "fc.h5")
        subjects = tuple(table["subject"])
        for name, other in (("series.h5", series.subjects), ("fc.h5", fc_subjects)):
            if other != subjects:
                raise BrioError(
                    f"{folder / name} and {folder / 'participants.tsv'} list different subjects; "
                    "run the workflow again so that both are made from the same cohort"
                )
        site, covariates = table["site"].to_numpy(), covariates_of(table)
        return cls(folder.name, subjects, site, fc, series, covariates)


def covariates_of(table) -> np.ndarray:
    """Age, sex (1 = male) and mean framewise displacement as float32; NaN if unknown or absurd."""
    columns = [
        covariate(table["age"]),
        table["sex"].str.lower().map(SEXES),
        covariate(table["mean_fd"]),
    ]
    return np.stack([column.to_numpy(np.float32) for column in columns], 1)
