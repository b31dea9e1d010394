"""A cohort on disk and in memory: series.h5, fc.h5, participants.tsv.

A method never holds a :class:`Cohort`. It fits on a :class:`TrainView`, which hands out the
training rows of one fold and has no way to another subject's scan or label.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from brio_core.cohorts.stores import Rois, Series, StoredRows, read_fc, read_series
from brio_core.connectivity.fisher_z import standardise
from brio_core.system.errors import BrioError
from brio_core.system.residence import Table, rows_of
from brio_core.system.threads import one_thread

PARTICIPANT_COLUMNS = (
    "subject", "site", "label", "age", "sex", "mean_fd", "tr", "group", "source",
)  # fmt: skip


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


class TrainRows:
    """The training subjects' rows of a table, copied when they are asked for: ``rows[:32]``.

    A cohort may be larger than memory; ``rows[:]`` is all of them at once.
    """

    def __init__(self, table: Table, rows: Tensor) -> None:
        self._table = table
        self._rows = rows
        self.shape = (len(rows), *table.shape[1:])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, chosen: slice | Tensor) -> Tensor:
        return rows_of(self._table, self._rows[chosen])


@dataclass(frozen=True)
class TrainView:
    """What a method may see of one fold while it fits: the training subjects and nothing else.

    ``site`` counts the training sites of the fold from 0, in alphabetical order. Of the inputs only
    those that the method needs are there; ``bold`` is zero beyond ``frames``. A path method whose
    features do not depend on the fold gets its ``features`` in place of the inputs, computed once
    for all folds, unless they are larger than memory. ``shared`` is what :meth:`Method.share` found
    out for the fold.
    """

    site: Tensor
    label: Tensor
    n_sites: int
    n_rois: int
    fc: Tensor | TrainRows | None = None
    bold: Tensor | TrainRows | None = None
    frames: Tensor | None = None
    covariates: Tensor | None = None
    row: Tensor | None = None
    rois: Rois | None = None
    features: dict[str, Tensor | TrainRows] | None = None
    shared: dict[str, Tensor] = field(default_factory=dict)

    def chunks(self, size: int) -> Iterator[dict[str, Tensor]]:
        """Shared features or else inputs of the training subjects, in order, ``size`` at a time."""
        names = ("fc", "bold", "frames", "covariates", "row")
        inputs = {name: getattr(self, name) for name in names}
        tables = self.features or {name: one for name, one in inputs.items() if one is not None}
        for start in range(0, len(self.label), size):
            yield {name: table[start : start + size] for name, table in tables.items()}


@dataclass(frozen=True)
class Cohort:
    """All subjects of a cohort, for the trainer and the diagnostics."""

    name: str
    subjects: tuple[str, ...]
    site: np.ndarray
    fc: np.ndarray | StoredRows
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

    @property
    def padded_bold(self) -> "PaddedScans":
        """Series standardised within each scan, padded with zeros to (N, T_max, P)."""
        return PaddedScans(self.series)

    @cached_property
    def checksum(self) -> str:
        """Differs when the connectivity of a subject does."""
        if isinstance(self.fc, StoredRows):
            return self.fc.checksum
        return hashlib.sha256(self.fc.tobytes()).hexdigest()


class PaddedScans:
    """A table of scans, each standardised and padded when it is asked for."""

    dtype = np.dtype(np.float32)

    def __init__(self, series: Series) -> None:
        self._series = series
        self.shape = (len(series), int(series.frames.max()), len(series.rois))
        self.nbytes = math.prod(self.shape) * self.dtype.itemsize

    def __getitem__(self, rows: Sequence[int] | np.ndarray) -> np.ndarray:
        padded = np.zeros((len(rows), *self.shape[1:]), self.dtype)
        with one_thread():
            for place, row in enumerate(rows):
                scan = torch.as_tensor(self._series.scan(row)).double()
                padded[place, : len(scan)] = standardise(scan).numpy()
        return padded


def _covariates(table) -> np.ndarray:
    """Age, sex (1 = male) and mean framewise displacement as float32; unknown values are NaN."""
    import pandas as pd

    male = {"m": 1.0, "male": 1.0, "1": 1.0, "f": 0.0, "female": 0.0, "2": 0.0, "0": 0.0}
    columns = [
        pd.to_numeric(table["age"], errors="coerce"),
        table["sex"].str.lower().map(male),
        pd.to_numeric(table["mean_fd"], errors="coerce"),
    ]
    return np.stack([column.to_numpy(np.float32) for column in columns], 1)
