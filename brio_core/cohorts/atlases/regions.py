"""What is known about the regions of series whose own files do not tell, or tell only numbers."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from brio_core.cohorts.tables import MISSING
from brio_core.system.errors import BrioError

# AAL alternates left and right; the last eight regions, the vermis, lie between them.
_AAL = ("L", "R") * 54 + (MISSING,) * 8


@dataclass(frozen=True)
class Regions:
    """The regions that ``path`` describes, in ascending order of their ``codes`` if it has them."""

    path: Path
    names: tuple[str, ...]
    codes: np.ndarray | None = None
    centroids: np.ndarray | None = None
    hemispheres: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def rows(self, index: np.ndarray) -> "Regions":
        """Some of the regions, in the order of ``index``."""
        return replace(
            self,
            names=tuple(self.names[row] for row in index),
            codes=None if self.codes is None else self.codes[index],
            centroids=None if self.centroids is None else self.centroids[index],
            hemispheres=self.hemispheres and tuple(self.hemispheres[row] for row in index),
        )

    def of_series(self, header: Sequence[str]) -> "Regions":
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
            own, wanted = list(self.names), list(header)
            is_known = set(own) & set(wanted)
        return self._looked_up(wanted, own) if is_known else self

    def rois(self):
        """The same as series.h5 keeps it."""
        from brio_core.cohorts.stores import Rois

        rois = Rois.named(self.names)
        centroids = rois.centroids if self.centroids is None else self.centroids
        known = self.hemispheres or sides(self.names, self.centroids)
        return replace(rois, centroids=centroids, hemispheres=known)

    def _looked_up(self, wanted: list, own: list) -> "Regions":
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
        return self.rows(np.array([own.index(cell) for cell in wanted]))


def known_places(atlas: str) -> tuple[tuple[str, ...], np.ndarray | None]:
    """Hemispheres of the regions of an atlas that series only number, and centroids if known.

    Those of CC200 are the centres of mass that the Preprocessed Connectomes Project lists. One lies
    at x = 0 and counts as right, so that every region has a side.
    """
    if atlas == "aal116":
        return _AAL, None
    table = np.loadtxt(Path(__file__).with_name(f"{atlas}.csv"), np.float32, "#", ",", skiprows=1)
    return tuple("L" if x < 0 else "R" for x in table[:, 1]), table[:, 1:]


def sides(names: Sequence[str], centroids: np.ndarray | None) -> tuple[str, ...]:
    """Hemispheres by the ends of the names, as of AAL, else by the sign of x."""
    ends = tuple({"_L": "L", "_R": "R"}.get(name[-2:], MISSING) for name in names)
    if set(ends) - {MISSING} or centroids is None:
        return ends
    return tuple("L" if x < 0 else "R" if x > 0 else MISSING for x in centroids[:, 0])


def shown(labels, most: int = 5) -> str:
    """The first few labels as text."""
    text = ", ".join(str(label) for label in list(labels)[:most])
    return text if len(labels) <= most else f"{text} and {len(labels) - most} more"
