"""A cohort on disk and in memory: series.h5, fc.h5, participants.tsv."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from brio_core.cohorts.stores import Series, read_fc, read_series
from brio_core.cohorts.tables import SEXES, covariate
from brio_core.connectivity.fisher_z import standardise
from brio_core.system.errors import BrioError
from brio_core.system.rows import Rows
from brio_core.system.threads import spread

PARTICIPANT_COLUMNS = (
    "subject", "site", "label", "age", "sex", "mean_fd", "tr", "group", "source",
)  # fmt: skip

CPU = torch.device("cpu")


def read_table(path: str | Path):
    """A tab-separated table as text (``n/a`` stays text), or a sentence that says what is wrong."""
    import pandas as pd

    try:
        return pd.read_csv(path, sep="\t", dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist") from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError) as error:
        raise BrioError(f"{path} is not a tab-separated table ({error})") from None


def read_participants(path: str | Path):
    """participants.tsv with integer labels."""
    table = read_table(path)
    missing = [column for column in PARTICIPANT_COLUMNS if column not in table.columns]
    if missing:
        raise BrioError(f"{path} has no column {missing[0]!r}; make it again with the cohort rule")
    cut_off = ~table["label"].isin(["0", "1"]) | (table["source"] == "") | table.isna().any(axis=1)
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
        return cls(folder.name, subjects, table["site"].to_numpy(), fc, series, _covariates(table))


def padded_scans(series: Series, device: torch.device = CPU) -> Rows:
    """Scans (N, T_max, P), standardised and padded with zeros when they are asked for.

    A GPU standardises many at once, a CPU one on each thread.
    """
    shape = (len(series), int(series.frames.max()), len(series.rois))

    def read(rows: Sequence[int] | np.ndarray) -> np.ndarray:
        # Frames that are not numbers are left out by the standardisation and become zeros.
        padded = np.full((len(rows), *shape[1:]), np.nan if device.type == "cuda" else 0, "f4")

        def fill(place: int) -> None:
            scan = series.scan(rows[place])
            if device.type == "cpu":
                scan = standardise(torch.as_tensor(scan).double()).numpy()
            padded[place, : len(scan)] = scan

        spread(fill, range(len(rows)), CPU)
        if device.type == "cpu":
            return padded
        return standardise(torch.as_tensor(padded, device=device).double()).float().cpu().numpy()

    return Rows(read, shape)


def _covariates(table) -> np.ndarray:
    """Age, sex (1 = male) and mean framewise displacement as float32; NaN if unknown or absurd."""
    columns = [
        covariate(table["age"]),
        table["sex"].str.lower().map(SEXES),
        covariate(table["mean_fd"]),
    ]
    return np.stack([column.to_numpy(np.float32) for column in columns], 1)
