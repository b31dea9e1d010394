"""ROI series that a lab already has: one file per subject, as text or as an array."""

import csv
import gzip
import re
import warnings
import zlib
from collections.abc import Iterator
from glob import escape
from itertools import pairwise
from pathlib import Path
from string import Formatter

import numpy as np

from brio_core.cohorts.readers.arrays import read_array
from brio_core.cohorts.readers.reader import Reader
from brio_core.cohorts.scan import Scan, Unusable, clean_scan
from brio_core.cohorts.tables import MISSING, open_text
from brio_core.system.errors import BrioError

_SEPARATORS = {".1d": r"\s+", ".txt": r"\s+", ".tsv": "\t", ".csv": ","}
_ARRAYS = (".npy", ".npz", ".mat", ".h5")
SERIES_ENDINGS = (*_SEPARATORS, *(f"{one}.gz" for one in _SEPARATORS), *_ARRAYS)
# Names of a first column that is no ROI; a header without one is written by data frames.
_FRAMES = ("time", "frame", "index")
# A ROI may rise by chance in fewer.
_FEWEST_STEPS = 5
_LARGEST_TEXT = 1 << 30
_DECIMAL_COMMA = re.compile(r"\s*[+-]?\d+(,\d+)?(e[+-]?\d+)?\s*", re.IGNORECASE)
# All that pandas takes for a missing value: a frame that begins with one is no header.
_MISSING_NUMBERS = (
    "", "n/a", "N/A", "NA", "<NA>", "#NA", "#N/A", "#N/A N/A", "nan", "NaN", "-nan", "-NaN",
    "null", "NULL", "None", "1.#IND", "-1.#IND", "1.#QNAN", "-1.#QNAN",
)  # fmt: skip


class SeriesReader(Reader):
    """``participants.tsv`` and one file of frames by ROIs per subject.

    ``source.pattern`` may use ``{subject}`` and ``{site}``, for example
    ``series/{site}/{subject}.tsv``; ``source.variable`` names the array in .npz, .mat and .h5.
    """

    def scan_paths(self, row: dict) -> list[Path]:
        columns = self.dataset["columns"]
        pattern = self.source["pattern"]
        values = {role: row[columns[role]] for role in ("subject", "site")}
        for role, value in values.items():
            if f"{{{role}" not in pattern:
                continue
            if value == MISSING:
                raise Unusable(f"missing file: its name needs the {role}")
            self.file_name_part(value, role)
        try:
            relative = pattern.format(**values)
        except (KeyError, IndexError, ValueError, AttributeError) as error:
            raise BrioError(
                f"source.pattern of cohort {self.dataset['cohort']} is {pattern!r}, but may only "
                f"use {{subject}} and {{site}} ({error}); correct it"
            ) from None
        return [self.inside(self.root, relative, f"the file of subject {values['subject']}")]

    def scan_files(self) -> Iterator[tuple[str, Path]]:
        files, subject, seen = "", "", set()
        for text, field, *_ in Formatter().parse(self.source["pattern"]):
            files, subject = files + escape(text), subject + re.escape(text)
            if field:
                files += "*"
                subject += f"(?P={field})" if field in seen else f"(?P<{field}>[^/]+)"
                seen.add(field)
        # Tables, labels and images of the cohort are no scans.
        rois, others = self.dataset["rois"], {self.table_path}
        others |= {self.root / further["file"] for further in self.source.get("tables", ())}
        others |= {self.root / rois[key] for key in ("labels", "image") if key in rois}
        for path in self.root.glob(files) if "subject" in seen else ():
            match = re.fullmatch(subject, path.relative_to(self.root).as_posix())
            if match and path not in others and path.is_file():
                yield match["subject"], path

    def read(self, path: Path, tr: float | None) -> Scan:
        return series_scan(path, self.source.get("variable"))


def series_scan(path: Path, variable: str | None = None) -> Scan:
    """Read one file; frames with a non-finite value are dropped jointly over all ROIs."""
    values, names = read_series_file(path, variable)
    if _is_connectivity(values):
        raise Unusable(
            f"looks like a connectivity matrix: {path.name} is square and symmetric, with the same "
            "value along its diagonal; series are needed, frames by ROIs"
        )
    if _counts_frames(values[:, 0], names):
        raise Unusable(
            f"a column too many: the first of {path.name} counts frames and is no ROI; leave it out"
        )
    return clean_scan(values, names, path.name)


def _counts_frames(first: np.ndarray, names: tuple[str, ...]) -> bool:
    """Whether the first column has numbers or times of frames, by its name or its values."""
    if names and names[0].lower() in _FRAMES:
        return True
    first = first[np.isfinite(first)]
    steps = np.diff(first)
    if len(steps) < _FEWEST_STEPS or not (steps > 0).all():
        return False
    # Times are rounded, and numbers of frames have gaps where some were cut out.
    return bool(np.allclose(steps, steps[0], rtol=0.05) or (first % 1 == 0).all())


def _is_connectivity(values: np.ndarray) -> bool:
    """Whether these are correlations or Fisher z; the diagonal may be 1, 0 or infinite."""
    if values.shape[0] != values.shape[1] or len(values) < 3:
        return False
    diagonal = np.diagonal(values)
    same = np.isclose(diagonal, diagonal[0], equal_nan=True).all()
    return bool(same and np.allclose(values, values.T, rtol=1e-3, atol=1e-5, equal_nan=True))


def read_series_file(path: Path, variable: str | None = None) -> tuple[np.ndarray, tuple[str, ...]]:
    """Values (frames, ROIs) in double precision and the ROI names of the header, if any."""
    ending = Path(path.stem if path.suffix.lower() == ".gz" else path.name).suffix.lower()
    if path.suffix.lower() in _ARRAYS:
        return read_array(path, variable), ()
    if ending not in _SEPARATORS:
        known = " ".join((".1D", *list(_SEPARATORS)[1:], *_ARRAYS))
        raise Unusable(f"unknown file type: {path.name} is none of {known}, nor text with .gz")
    return _read_text(path, _SEPARATORS[ending])


def _read_text(path: Path, usual: str) -> tuple[np.ndarray, tuple[str, ...]]:
    import pandas as pd

    try:
        _check_size(path)
        separator = _separator(path, usual)
        skipped, names = _header(path, separator)
        values = _plain_numbers(path, separator, skipped)
        if values is None:
            table = pd.read_csv(
                path, sep=separator, header=None, skiprows=skipped, encoding="utf-8-sig",
                keep_default_na=False, na_values=list(_MISSING_NUMBERS),
                compression="gzip" if path.suffix.lower() == ".gz" else None,
            )  # fmt: skip
            values = table.to_numpy(np.float64, copy=True)
    except (
        pd.errors.ParserError, pd.errors.EmptyDataError, ValueError, OSError, EOFError, zlib.error,
        csv.Error, OverflowError, MemoryError,
    ) as error:  # fmt: skip
        text = str(error) or "too large for the memory"
        if isinstance(error, UnicodeDecodeError):
            text = "it is not in UTF-8; save it so"
        elif re.search(r"'[+-]?\d*,\d+'", text):
            text = "it has decimal commas; write decimal points"
        raise Unusable(f"unreadable file: {path.name} ({text})") from None
    return values, names if len(names) == values.shape[1] else ()


def _plain_numbers(path: Path, separator: str, skipped: int) -> np.ndarray | None:
    """Finite numbers in rows of one length, which NumPy reads three times as fast as pandas."""
    with open_text(path) as lines, warnings.catch_warnings():
        # A header without numbers is a warning of NumPy's.
        warnings.simplefilter("error")
        try:
            values = np.loadtxt(
                lines, comments=None, delimiter=None if separator == r"\s+" else separator,
                skiprows=skipped, ndmin=2,
            )  # fmt: skip
        except (ValueError, UserWarning):
            return None
    return values if np.isfinite(values).all() else None


def _check_size(path: Path) -> None:
    """Raise if a file holds more text than a series can be; a compressed one is read for it."""
    size = path.stat().st_size
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as stream:
            size = 0
            while size <= _LARGEST_TEXT and (block := stream.read(1 << 20)):
                size += len(block)
    if size > _LARGEST_TEXT:
        raise ValueError(f"it has more than {_LARGEST_TEXT:,} bytes of text, and no series has")


def _separator(path: Path, usual: str) -> str:
    """What separates the numbers: the usual of the file's type, unless there is none of it."""
    with open_text(path) as lines:
        line = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    if ";" in line and all(_DECIMAL_COMMA.fullmatch(cell) for cell in line.split(";")):
        if "," in line:
            raise ValueError("it has decimal commas; write decimal points")
        return ";"
    cells = line.split()
    if usual != r"\s+" and usual in line:
        return usual
    if usual == r"\s+" and len(cells) > 1 and not all(cell[-1] in ",;" for cell in cells[:-1]):
        return usual
    return next((one for one in ";,\t" if one in line), r"\s+")


def _header(path: Path, separator: str) -> tuple[int, tuple[str, ...]]:
    """Number of leading lines that hold no frame, and the cells of the last of them.

    Those are any number of lines that start with ``#``, then at most one line of column names
    or numbers.
    """
    names: tuple[str, ...] = ()
    with open_text(path) as stream:
        following = (_cells(later.rstrip("\r\n"), separator) for later in stream)
        for number, line in enumerate(stream):
            line = line.rstrip("\r\n")
            cells = _cells(line, separator)
            is_comment = line.startswith("#")
            unnamed = not is_comment and cells and not cells[0].strip()
            if unnamed and (_is_text(cells[1:]) or _counts(cells[1:])):
                cells[0] = "index"
            is_header = _is_text(cells) or _counts(cells)
            if not (is_comment or is_header or _are_codes(cells, following, names)):
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
            if cell.strip() not in _MISSING_NUMBERS:
                return True
    return False


def _counts(cells: list[str]) -> bool:
    """A header 0, 1, 2, ... or 1, 2, 3, ..., as data frames without column names are written."""
    return len(cells) > 1 and any(
        cells == [str(start + index) for index in range(len(cells))] for start in (0, 1)
    )


def _are_codes(cells: list[str], following: Iterator[list[str]], names: tuple[str, ...]) -> bool:
    """A header of numbers of regions, such as 2001, 2002, 2101, ... of AAL.

    A first frame can look the same, so the next one decides: a series does not go over from whole
    numbers to others. If that is whole as well, numbers that do not ascend are a frame. Of those
    that do, nothing tells, unless a comment has the ``names``.
    """
    if len(cells) < 2 or not all(re.fullmatch(r"\s*[0-9]+\s*", cell) for cell in cells):
        return False
    numbers = [int(cell) for cell in cells]
    ascend = all(left < right for left, right in pairwise(numbers))
    # Two numbers of a frame are often distinct by chance.
    if not ascend and not (len(numbers) > 2 and len(set(numbers)) == len(numbers)):
        return False
    frame = next((later for later in following if _present(later)), [])
    if frame and len(frame) != len(cells):
        return False
    if not all(re.fullmatch("[+-]?[0-9]+", cell) for cell in _present(frame)):
        return True
    if not ascend or len(names) == len(cells):
        return False
    raise ValueError(
        "its first line may be the numbers of the regions or a frame; begin a header with '#', or "
        "write the frame with decimal points"
    )


def _present(cells: list[str]) -> list[str]:
    stripped = (cell.strip() for cell in cells)
    return [cell for cell in stripped if cell not in _MISSING_NUMBERS]
