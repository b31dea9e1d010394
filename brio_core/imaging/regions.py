"""Names and hemispheres of the regions of atlases whose series come without them."""

from pathlib import Path

from brio_core.errors import BrioError
from brio_core.imaging.tables import read_table

_FOLDER = Path(__file__).with_name("atlases")


def region_table(atlas: str, expected: int):
    """Label, name and hemisphere of the regions of an atlas, in the order of labels."""
    path = _FOLDER / f"{atlas}.tsv"
    if not path.exists():
        raise BrioError(f"rois.names is {atlas!r}, but there is no table of its regions")
    table = read_table(path)
    if len(table) != expected:
        raise BrioError(
            f"rois.names is {atlas!r}, an atlas of {len(table)} regions, but rois.expected is "
            f"{expected}; correct one of them"
        )
    return table


def known_rois(atlas: str, expected: int, names: tuple[str, ...] = ()):
    """The regions of an atlas as they are stored with the series.

    ``names`` are those that the files carry: where these are labels, they must be the atlas's.
    """
    from brio_core.cohort import Rois

    table = region_table(atlas, expected)
    labels, order = tuple(table["index"]), tuple(str(index + 1) for index in range(expected))
    if names and all(name.isdecimal() for name in names) and names not in (labels, order):
        raise BrioError(
            f"the files name their regions {', '.join(names[:3])} and so on, which are not the "
            f"labels of {atlas!r}; remove rois.names"
        )
    unplaced = Rois.named(table["name"])
    return Rois(unplaced.names, unplaced.centroids, tuple(table["hemisphere"]))
