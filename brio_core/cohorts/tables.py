"""Text tables as users keep them: every cell is text, a missing cell is ``n/a``."""

import csv
import gzip
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TextIO

import numpy as np

from brio_core.system.errors import BrioError, one_line
from brio_core.system.files import write_text

MISSING = "n/a"
# What names of files and attributes of HDF5 files can hold, with something to spare.
LONGEST_NAME = 200
_MISSING_SPELLINGS = {"", "n/a", "na", "nan", "null", "[]", "-9999", "-9999.0"}
_QUOTED = re.compile(r'"((?:[^"]|"")*)"')

# An age in days is below the first, a mean displacement in mm below the second. What is negative or
# larger, such as -9999, stands for a missing value or is a mistake.
LARGEST = {"age": 1e5, "mean_fd": 1e3}
# How tables write the sexes, in any case, and as which number a covariate has them.
SEXES = {"1": 1.0, "m": 1.0, "male": 1.0, "0": 0.0, "2": 0.0, "f": 0.0, "female": 0.0}


def covariate(name: str, texts: Iterable[str]) -> np.ndarray:
    """One of ``LARGEST`` as numbers; what is none, or cannot be true, is NaN."""
    values = np.array([_number(text) for text in texts])
    return np.where((values >= 0) & (values <= LARGEST[name]), values, np.nan)


def _number(text: str) -> float:
    try:
        return np.nan if "_" in text else float(text)
    except ValueError:
        return np.nan


def read_table(path: str | Path, sheet: str | None = None):
    """Read a .csv, a sheet of an .xlsx, or a tab-separated table.

    A header without its usual separator may have another: tabs, commas or semicolons. Cells are
    stripped text, and all spellings of a missing value become ``n/a``.
    """
    import pandas as pd

    path = Path(path)
    with _readable(path, pd.errors.ParserError, pd.errors.EmptyDataError):
        table = _read_sheet(path, sheet) if path.suffix.lower() == ".xlsx" else _read_text(path)
    table.columns = table.columns.astype(str).str.strip()
    return table.map(plain)


def read_own_columns(path: str | Path, columns: Iterable[str]) -> dict[str, list[str]]:
    """The columns of a table that the workflow has written, with all these; without pandas."""
    path = Path(path)
    with _readable(path):
        header, *rows = list(_rows(path)) or [[]]
    cells = zip(*(map(plain, chain(row, [""] * (len(header) - len(row)))) for row in rows))
    found = dict(zip(header, map(list, cells))) if rows else {name: [] for name in header}
    if missing := [column for column in columns if column not in found]:
        raise BrioError(
            f"{path} has no column {missing[0]!r}; delete it and run the workflow again"
        )
    return found


def read_own_table(path: str | Path, columns: Iterable[str]):
    """The same as a table of pandas."""
    import pandas as pd

    return pd.DataFrame(read_own_columns(path, columns), dtype=str)


@contextmanager
def _readable(path: Path, *errors: type[Exception]) -> Iterator[None]:
    """What is wrong with a file is said in a sentence."""
    try:
        yield
    except FileNotFoundError:
        raise BrioError(f"{path} does not exist; put it there, or correct its path") from None
    except (PermissionError, IsADirectoryError) as error:
        raise BrioError(f"{path} cannot be read: {error.strerror}; make it readable") from None
    except (UnicodeDecodeError, csv.Error, *errors) as error:
        raise BrioError(f"{path} cannot be read as a table ({error}); repair the file") from None


def _read_text(path: Path):
    """A text table; pandas names columns without a name, or with that of another."""
    import pandas as pd

    checked = StringIO()
    csv.writer(checked, quoting=csv.QUOTE_ALL).writerows(_rows(path))
    checked.seek(0)
    return pd.read_csv(checked, dtype=str, keep_default_na=False, index_col=False)


def _rows(path: Path) -> Iterator[list[str]]:
    """The header of a text table and its lines, none longer than the header."""
    columns = None
    with open_text(path) as lines:
        header = next((line for line in lines if line.strip()), "")
    separator = _separator(header, "," if ".csv" in path.name.lower() else "\t")
    with open_text(path) as lines:
        if separator == "\t":
            split = _split_at_tabs(path, lines)
        else:
            split = _split_at(separator, path, lines)
        for number, cells in split:
            columns = len(cells) if columns is None else columns
            if any(cell.strip() for cell in cells[columns:]):
                raise BrioError(
                    f"{path} has more cells in line {number} than names in its header; name every "
                    "column, and keep separators out of the cells"
                )
            # Separators at the end of a row are dropped, as they hold no cell.
            yield cells[:columns]


def open_text(path: Path) -> TextIO:
    """A text file, compressed or not, for reading."""
    opened = gzip.open if path.suffix.lower() == ".gz" else open
    return opened(path, "rt", encoding="utf-8-sig", newline="")


def _separator(header: str, usual: str) -> str:
    """What separates the names of a header: the usual, unless it has none or semicolons instead."""
    counts = {one: header.count(one) for one in (usual, ";", ",", "\t")}
    if usual == "\t" and counts["\t"]:
        return "\t"
    return max(counts, key=counts.get)


def _split_at_tabs(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The number of each line and its cells, without the quotes around them.

    A quote opens nothing: an unpaired one in a comment must not swallow the lines behind it.
    """
    columns, is_open = 0, False
    for number, line in enumerate(lines, 1):
        if not line.strip(" \r\n"):
            continue
        cells = line.rstrip("\r\n").split("\t")
        columns = columns or len(cells)
        if is_open and len(cells) < columns:
            raise BrioError(
                f"{path} has a cell that goes on in line {number}; take the line break out, or the "
                "quote before it"
            )
        is_open = cells[-1].startswith('"') and not _QUOTED.fullmatch(cells[-1])
        yield number, [_unquoted(cell) for cell in cells]


def _unquoted(cell: str) -> str:
    quoted = _QUOTED.fullmatch(cell)
    return quoted[1].replace('""', '"') if quoted else cell


def _split_at(separator: str, path: Path, lines: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """The number of each line and its cells; quoted ones may hold separators, but no line breaks.

    An unpaired quote swallows the lines up to the next one, and so looks like a line break.
    """
    reader = csv.reader(
        chain(lines, ["\n"]), delimiter=separator
    )  # so that it does at the end of the file, too
    header: list[str] = []
    number = 1
    for cells in reader:
        header = header or cells
        for index, cell in enumerate(cells):
            if "\n" in cell or "\r" in cell:
                name = header[index] if index < len(header) else str(index + 1)
                raise BrioError(
                    f"{path} has a line break in column {plain(name)[:50]!r} of line {number}; "
                    "take it out, or the unpaired quote that begins the cell"
                )
        if cells and not (len(cells) == 1 and cells[0].isspace()):
            yield number, cells
        number = reader.line_num + 1


def _read_sheet(path: Path, sheet: str | None):
    """One sheet, by default the first; whole numbers stay without a decimal point."""
    from zipfile import BadZipFile

    import pandas as pd

    try:
        with pd.ExcelFile(path, engine="openpyxl") as book:
            name = book.sheet_names[0] if sheet is None else sheet
            if name not in book.sheet_names:
                raise BrioError(
                    f"{path} has no sheet {name!r}, only {', '.join(book.sheet_names)}; "
                    "put the original file there or name its sheets"
                )
            return pd.read_excel(book, name, dtype=object, keep_default_na=False)
    except (BadZipFile, KeyError, ValueError) as error:
        raise BrioError(f"{path} cannot be read as .xlsx ({error}); repair the file") from None


def plain(cell: object) -> str:
    """One cell as printable text without line breaks, tabs or spaces around it."""
    text = one_line(str(cell))
    return MISSING if text.lower() in _MISSING_SPELLINGS else text


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``did you mean 'Site'?``, or an empty text if nothing that is known resembles the name."""
    by_letters = {letters(one): one for one in known}
    close = get_close_matches(letters(name), by_letters, 1)
    return f"did you mean {by_letters[close[0]]!r}?" if close else ""


def bare(subject: str) -> str:
    """Letters and digits of an id: one study spells it sub-NDARINV0A and NDAR_INV0A."""
    return letters(subject.lower().removeprefix("sub-"))


def letters(name: str) -> str:
    """The letters and digits of a name, which may be spelt with other signs and capitals."""
    return "".join(filter(str.isalnum, name)).casefold()


def refuse_formula(text: str, where: str) -> None:
    """Raise if a spreadsheet would run ``text`` as a formula, or if it is too long for a name."""
    if len(text.encode()) > LONGEST_NAME:
        raise BrioError(f"{where} is {text[:50]!r}… with over {LONGEST_NAME} bytes; shorten it")
    if len(text) > 1 and text[0] in "=@+-" and not _is_number(text):
        raise BrioError(f"{where} is {text!r}, which a spreadsheet takes for a formula; rename it")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_table(path: str | Path, columns: tuple[str, ...], rows: list[dict]) -> None:
    """Write a tab-separated table in one step; text that begins with a quote is quoted."""
    lines = ["\t".join(columns)]
    lines += ["\t".join(_written(row[column]) for column in columns) for row in rows]
    write_text(path, "\n".join(lines) + "\n")


def _written(cell: object) -> str:
    text = str(cell)
    return '"' + text.replace('"', '""') + '"' if text.startswith('"') else text
