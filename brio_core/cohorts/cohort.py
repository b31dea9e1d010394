"""A cohort on disk and in memory: series.h5, fc.h5, participants.tsv."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from brio_core.cohorts.stores import Series, read_fc, read_series
from brio_core.cohorts.tables import SEXES, covariate, read_own_columns
from brio_core.system.errors import BrioError
from brio_core.system.rows import Rows

PARTICIPANT_COLUMNS = (
    "subject", "site", "label", "age", "sex", "mean_fd", "tr", "group", "source",
)  # fmt: skip


def read_participants(path: str | Path):
    """participants.tsv as a table of pandas, with integer labels."""
    import pandas as pd

    table = pd.DataFrame(participants(path), dtype=str)
    table["label"] = table["label"].astype(int)
    return table


def participants(path: str | Path) -> dict[str, list[str]]:
    """The columns of participants.tsv; importing pandas would add 0.3 s to every training job."""
    columns = read_own_columns(path, PARTICIPANT_COLUMNS)
    cut_off = [label not in ("0", "1") for label in columns["label"]]
    # A whole table ends with a line break.
    if cut_off and Path(path).read_bytes()[-1:] != b"\n":
        cut_off[-1] = True
    if any(cut_off):
        raise BrioError(
            f"{path} is damaged at subject {columns['subject'][cut_off.index(True)]}; delete it "
            "and run the workflow again"
        )
    return columns


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
    def load(cls, folder: str | Path, at_once: int = 0) -> "Cohort":
        """Read participants.tsv, series.h5 and fc.h5 of one folder and check that they agree.

        Connectivity of ``at_once`` bytes or less is read too; otherwise rows are, when asked for.
        """
        folder = Path(folder)
        people = participants(folder / "participants.tsv")
        series = read_series(folder / "series.h5")
        fc_subjects, fc = read_fc(folder / "fc.h5")
        if fc.nbytes <= at_once:
            fc = fc[:]
        subjects = tuple(people["subject"])
        for name, other in (("series.h5", series.subjects), ("fc.h5", fc_subjects)):
            if other != subjects:
                raise BrioError(
                    f"{folder / name} and {folder / 'participants.tsv'} list different subjects; "
                    "run the workflow again so that both are made from the same cohort"
                )
        site = np.array(people["site"], object)
        return cls(folder.name, subjects, site, fc, series, covariates_of(people))


def covariates_of(columns: Mapping[str, Iterable[str]]) -> np.ndarray:
    """Age, sex (1 = male) and mean framewise displacement as float32; NaN if unknown or absurd."""
    sex = [SEXES.get(text.lower(), np.nan) for text in columns["sex"]]
    numbers = [covariate(name, columns[name]) for name in ("age", "mean_fd")]
    return np.stack([numbers[0], sex, numbers[1]], 1).astype(np.float32)
