"""What is known about the regions of series whose own files do not tell, or tell only numbers.

Label files say what the regions of an atlas are called, in the layouts that atlases come with.
"""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brio_core.cohorts.stores import Rois
from brio_core.cohorts.tables import MISSING, read_table
from brio_core.system.errors import BrioError

# AAL alternates left and right; the last eight regions, the vermis, lie between them.
_AAL = ("L", "R") * 54 + (MISSING,) * 8
# Columns that may hold a region's number, the first that is there counts.
_CODES = ("index", "code", "value")
# The Preprocessed Connectomes Project compares its functional parcels with these atlases; AAL's
# names are the shortest.
_COMPARED = ("aal", "harvard-oxford", "talairach-tournoux", "eickhoff-zilles", "dosenbach")
_PLACE = r"\(\s*(-?[\d.]+);\s*(-?[\d.]+);\s*(-?[\d.]+)\s*\)"
_SHARE = re.compile(r'\["([^"]+)": (\d*\.?\d+)\]')


@dataclass(frozen=True)
class Regions:
    """The regions that ``path`` describes, in ascending order of their ``codes`` if it has them."""

    path: Path
    rois: Rois
    codes: np.ndarray | None = None

    def of_series(self, header: Sequence[str]) -> Rois:
        """The regions in the order of the columns of series, whose header may name them.

        A header of codes or of our names is looked up. Else, and where it only counts the columns,
        the order is that of the codes, or of the file if it has none.
        """
        if header and all(cell.isdecimal() for cell in header):
            own = [] if self.codes is None else self.codes.tolist()
            wanted = [int(cell) for cell in header]
            counts = [list(range(start, start + len(wanted))) for start in (0, 1)]
            is_known = own and (wanted not in counts or set(wanted) == set(own))
        else:
            own, wanted = list(self.rois.names), list(header)
            is_known = set(own) & set(wanted)
        return self._looked_up(wanted, own) if is_known else self.rois

    def _looked_up(self, wanted: list, own: list) -> Rois:
        strange = [cell for cell in wanted if cell not in own]
        if strange:
            raise BrioError(
                f"the series have the region(s) {shown(strange)}, which {self.path} does not name; "
                "choose the labels of the atlas that the series were made with"
            )
        absent = [cell for cell in own if cell not in wanted]
        if absent:
            raise BrioError(
                f"{self.path} names the region(s) {shown(absent)}, which the series do not have; "
                "choose the labels of the atlas that the series were made with"
            )
        return self.rois.at(np.array([own.index(cell) for cell in wanted]))


def known_places(atlas: str) -> tuple[tuple[str, ...], np.ndarray]:
    """Hemispheres and centroids of the regions of an atlas that series only number.

    Those of CC200 are the centres of mass that the Preprocessed Connectomes Project lists. One lies
    at x = 0 and counts as right, so that every region has a side.
    """
    if atlas == "aal116":
        return _AAL, np.full((len(_AAL), 3), np.nan, np.float32)
    table = np.loadtxt(Path(__file__).with_name(f"{atlas}.csv"), np.float32, "#", ",", skiprows=1)
    return tuple("L" if x < 0 else "R" for x in table[:, 1]), table[:, 1:]


def with_sides(rois: Rois) -> Rois:
    """Unknown hemispheres by the ends of the names, as of AAL, else by the sign of x."""
    if set(rois.hemispheres) != {MISSING}:
        return rois
    ends = tuple({"_L": "L", "_R": "R"}.get(name[-2:], MISSING) for name in rois.names)
    return replace(rois, hemispheres=ends if set(ends) != {MISSING} else _by_x(rois.centroids))


def _by_x(centroids: np.ndarray) -> tuple[str, ...]:
    return tuple("L" if x < 0 else "R" if x > 0 else MISSING for x in centroids[:, 0])


def shown(labels, most: int = 5) -> str:
    """The first few labels as text."""
    text = ", ".join(str(label) for label in list(labels)[:most])
    return text if len(labels) <= most else f"{text} and {len(labels) - most} more"


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
        found = Regions(path, Rois.named(line[1].strip() for line in cells), codes)
    elif len(first) == 1:
        found = Regions(path, Rois.named(line.strip() for line in lines))
    else:
        raise BrioError(
            f"{path} is no label file of a known layout; it needs a column 'name', or lines of "
            "short name, name and number, or one name per line"
        )
    found = _ascending(found)
    if "" in found.rois.names or MISSING in found.rois.names:
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
    rois = Rois.named(table["name"])
    if {"x", "y", "z"} <= set(table.columns):
        places = _numbers(path, table.replace(MISSING, "nan"), ["x", "y", "z"], np.float32)
        rois = replace(rois, centroids=places)
    if "hemisphere" in table.columns:
        letters = {"l": "L", "r": "R"}
        known = (letters.get(side[0].lower(), MISSING) for side in table["hemisphere"])
        rois = replace(rois, hemispheres=tuple(known))
    return Regions(path, rois, codes)


def _numbers(path: Path, table, columns: list[str], kind: type) -> np.ndarray:
    try:
        return table[columns].to_numpy().astype(kind)
    except (ValueError, OverflowError) as error:
        what = "the whole numbers of the atlas image" if kind is int else "numbers, in mm"
        shown = ", ".join(map(repr, columns))
        raise BrioError(
            f"column {shown} of {path} must hold {what} ({error}); correct it"
        ) from None


def _from_comparison(path: Path) -> Regions:
    """Every parcel by the region it shares most with, in the first atlas that knows it."""
    table = _read_lowered(path)
    table[["x", "y", "z"]] = table["center of mass"].str.extract(_PLACE)
    codes = _numbers(path, table, ["roi number"], int)[:, 0]
    places = _numbers(path, table, ["x", "y", "z"], np.float32)
    compared = [column for column in _COMPARED if column in table.columns]
    names = tuple(_largest(row) for row in table[compared].to_numpy())
    return Regions(path, Rois(names, places, _by_x(places)), codes)


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
    order = order[found.codes[order] != 0]
    return replace(found, rois=found.rois.at(order), codes=found.codes[order])


def _told_apart(found: Regions) -> Regions:
    """Names that occur more than once get the number of their region."""
    names = found.rois.names
    count = Counter(names)
    numbers = range(1, len(names) + 1) if found.codes is None else found.codes
    told = (
        f"{name} #{number}" if count[name] > 1 else name for name, number in zip(names, numbers)
    )
    return replace(found, rois=with_sides(replace(found.rois, names=tuple(told))))
