"""Label files: what the regions of an atlas are called, in the layouts that atlases come with."""

import csv
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from brio_core.cohorts.atlases.regions import Regions, sides
from brio_core.cohorts.tables import MISSING, read_table
from brio_core.system.errors import BrioError

# Columns that may hold a region's number, the first that is there counts.
_CODES = ("index", "code", "value")
# The Preprocessed Connectomes Project compares its functional parcels with these atlases; AAL's
# names are the shortest.
_COMPARED = ("aal", "harvard-oxford", "talairach-tournoux", "eickhoff-zilles", "dosenbach")
_PLACE = r"\(\s*(-?[\d.]+);\s*(-?[\d.]+);\s*(-?[\d.]+)\s*\)"
_SHARE = re.compile(r'\["([^"]+)": (\d*\.?\d+)\]')


def read_labels(path: Path) -> Regions:
    """Names, and what else the file tells, in ascending order of the regions' numbers.

    Known are a table with a column ``name``, lines of short name, name and number (AAL), the
    project's comparison of its parcels with other atlases (CC200), and one name per line in the
    order of the regions. Background, number 0, is left out.
    """
    lines = _lines(path)
    separator = "," if path.suffix == ".csv" else "\t"
    first = {cell.strip().lower() for cell in next(csv.reader(lines[:1], delimiter=separator))}
    cells = [line.split("\t") for line in lines]
    if "name" in first:
        found = _from_table(path)
    elif {"roi number", "center of mass"} <= first:
        found = _from_comparison(path)
    elif all(len(line) == 3 and line[2].strip().isdecimal() for line in cells):
        codes = np.array([int(line[2]) for line in cells])
        found = Regions(path, tuple(line[1].strip() for line in cells), codes)
    elif len(first) == 1:
        found = Regions(path, tuple(line.strip() for line in lines))
    else:
        raise BrioError(
            f"{path} is no label file of a known layout; it needs a column 'name', or lines of "
            "short name, name and number, or one name per line"
        )
    found = _ascending(found)
    if "" in found.names or MISSING in found.names:
        raise BrioError(f"{path} has a region without a name; name it or remove its line")
    return _told_apart(found)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BrioError(f"label file {path} cannot be read ({error}); replace it") from None
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise BrioError(f"label file {path} is empty; replace it")
    return lines


def _read_lowered(path: Path):
    """A table whose columns may be spelt in capitals."""
    table = read_table(path)
    table.columns = table.columns.str.lower()
    if not table.columns.is_unique:
        twice = table.columns[table.columns.duplicated()][0]
        raise BrioError(f"{path} has the column {twice!r} twice; keep one of them")
    return table


def _from_table(path: Path) -> Regions:
    table = _read_lowered(path)
    numbers = next((column for column in _CODES if column in table.columns), None)
    codes = None if numbers is None else _numbers(path, table, [numbers], int)[:, 0]
    places = None
    if {"x", "y", "z"} <= set(table.columns):
        places = _numbers(path, table.replace(MISSING, "nan"), ["x", "y", "z"], np.float32)
    known = None
    if "hemisphere" in table.columns:
        known = tuple({"l": "L", "r": "R"}.get(side[0].lower(), MISSING)
                      for side in table["hemisphere"])  # fmt: skip
    return Regions(path, tuple(table["name"]), codes, places, known)


def _numbers(path: Path, table, columns: list[str], kind: type) -> np.ndarray:
    try:
        return table[columns].to_numpy().astype(kind)
    except (ValueError, OverflowError) as error:
        what = "the whole numbers of the atlas image" if kind is int else "numbers, in mm"
        shown = ", ".join(map(repr, columns))
        raise BrioError(f"column {shown} of {path} must hold {what} ({error})") from None


def _from_comparison(path: Path) -> Regions:
    """Every parcel by the region it shares most with, in the first atlas that knows it."""
    table = _read_lowered(path)
    table[["x", "y", "z"]] = table["center of mass"].str.extract(_PLACE)
    codes = _numbers(path, table, ["roi number"], int)[:, 0]
    places = _numbers(path, table, ["x", "y", "z"], np.float32)
    compared = [column for column in _COMPARED if column in table.columns]
    names = tuple(_largest(row) for row in table[compared].to_numpy())
    return Regions(path, names, codes, places, sides((), places))


def _largest(cells: list[str]) -> str:
    for cell in cells:
        shares = {name: float(share) for name, share in _SHARE.findall(cell)}
        name = max(shares, key=shares.get, default="None")
        if name != "None":
            return name
    return "unnamed"


def _ascending(found: Regions) -> Regions:
    if found.codes is None:
        return found
    if len(np.unique(found.codes)) != len(found.codes):
        raise BrioError(f"{found.path} names one label twice; keep one row per label")
    order = np.argsort(found.codes)
    return found.rows(order[found.codes[order] != 0])


def _told_apart(found: Regions) -> Regions:
    """Names that occur more than once get the number of their region."""
    count = Counter(found.names)
    numbers = range(1, len(found) + 1) if found.codes is None else found.codes
    names = (
        f"{name} #{number}" if count[name] > 1 else name
        for name, number in zip(found.names, numbers)
    )
    return replace(found, names=tuple(names))
