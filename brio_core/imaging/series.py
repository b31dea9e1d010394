"""ROI series that a lab already has: one text table or .npy file per subject."""

import csv
from pathlib import Path

import numpy as np

from brio_core.imaging.base import Scan, Source, Unusable, constant_columns, finite_frames
from brio_core.imaging.tables import read_table

_SEPARATORS = {".1D": r"\s+", ".txt": r"\s+", ".tsv": "\t", ".csv": ","}


class SeriesSource(Source):
    """``participants.tsv`` and one file of frames by ROIs per subject.

    ``source.pattern`` may use ``{subject}`` and ``{site}``, for example
    ``series/{site}/{subject}.tsv``.
    """

    @property
    def table_path(self) -> Path:
        name = self.settings.get("participants", "participants.tsv")
        return self.need(self.inside(self.root, name, "source.participants"))

    def table(self):
        return read_table(self.table_path, "," if self.table_path.suffix == ".csv" else "\t")

    def scan_path(self, row: dict) -> Path:
        columns = self.dataset["columns"]
        values = {role: row[columns[role]] for role in ("subject", "site")}
        relative = self.settings["pattern"].format(**values)
        return self.inside(self.root, relative, f"the file of subject {values['subject']}")

    def read(self, path: Path, tr: float | None) -> Scan:
        return series_scan(path)


def series_scan(path: Path) -> Scan:
    """Read one file; frames with a non-finite value are dropped jointly over all ROIs."""
    values, names = read_series_file(path)
    kept = values[finite_frames(values)]
    constant = constant_columns(kept)
    kept[:, constant] = 0
    return Scan(kept.astype(np.float32), len(values), int(constant.sum()), names)


def read_series_file(path: Path) -> tuple[np.ndarray, tuple[str, ...]]:
    """Values (frames, ROIs) in double precision and the ROI names of the header, if any."""
    if path.suffix == ".npy":
        return _read_npy(path), ()
    if path.suffix not in _SEPARATORS:
        raise Unusable(f"unknown file type: {path.name} is none of .npy {' '.join(_SEPARATORS)}")
    return _read_text(path, _SEPARATORS[path.suffix])


def _read_npy(path: Path) -> np.ndarray:
    try:
        values = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise Unusable(f"unreadable file: {path.name} ({error})") from None
    if values.ndim != 2 or values.dtype.kind not in "fiu":
        raise Unusable(
            f"unreadable file: {path.name} holds a {values.ndim}-dimensional {values.dtype} array "
            "instead of numbers, frames by ROIs"
        )
    return values.astype(np.float64)


def _read_text(path: Path, separator: str) -> tuple[np.ndarray, tuple[str, ...]]:
    import pandas as pd

    try:
        skipped, names = _header(path, separator)
        table = pd.read_csv(path, sep=separator, header=None, skiprows=skipped, na_values=["n/a"])
        values = table.to_numpy(np.float64)
    except (pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, OSError) as error:
        raise Unusable(f"unreadable file: {path.name} ({error})") from None
    return values, names if len(names) == values.shape[1] else ()


def _header(path: Path, separator: str) -> tuple[int, tuple[str, ...]]:
    """Number of leading lines that hold no frame, and the cells of the last of them.

    Those are any number of lines that start with ``#``, then at most one line of column names.
    """
    names: tuple[str, ...] = ()
    with open(path, encoding="utf-8", newline="") as stream:
        for number, line in enumerate(stream):
            line = line.rstrip("\r\n")
            cells = _cells(line, separator)
            is_comment = line.startswith("#")
            if not (is_comment or _is_text(cells) or _counts(cells)):
                return number, names
            stripped = (cell.lstrip("#").strip() for cell in cells)
            names = tuple(cell for cell in stripped if cell)
            if not is_comment:
                return number + 1, names
    raise ValueError("there is no line of numbers")


def _cells(line: str, separator: str) -> list[str]:
    if separator == r"\s+":
        return line.split()
    return next(csv.reader([line], delimiter=separator), [])


def _is_text(cells: list[str]) -> bool:
    for cell in cells:
        try:
            float(cell)
        except ValueError:
            if cell.strip() not in ("", "n/a"):
                return True
    return False


def _counts(cells: list[str]) -> bool:
    """A header 0, 1, 2, ... or 1, 2, 3, ..., as data frames without column names are written."""
    return len(cells) > 1 and any(
        cells == [str(start + index) for index in range(len(cells))] for start in (0, 1)
    )
