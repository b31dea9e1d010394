"""What every kind of source has in common, and which reader belongs to which kind."""

import os
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path

from brio_core.cohorts.atlases.regions import Regions, known_places, read_labels
from brio_core.cohorts.scan import Scan, Unusable, join_runs
from brio_core.cohorts.stores import Rois
from brio_core.cohorts.tables import MISSING, bare, read_table
from brio_core.system.errors import BrioError

# A new kind is one module called like it with a class such as BidsReader, its name here, and its
# keys in dataset.schema.yaml. It is imported when needed: nilearn is slow, and few kinds need it.
KINDS = ("bids", "dpabi", "pcp", "series")


def open_reader(dataset: dict, data_dir: str | Path) -> "Reader":
    """The reader of the source that a dataset's YAML describes."""
    kind = dataset["source"]["kind"]
    if kind not in KINDS:
        raise BrioError(
            f"cohort {dataset['cohort']} has the unknown source kind {kind!r}; "
            f"choose one of {', '.join(KINDS)}"
        )
    module = import_module(f"brio_core.cohorts.readers.{kind}")
    reader = getattr(module, f"{kind.capitalize()}Reader")(dataset, data_dir)
    reader.need(reader.root)
    return reader


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


def _rows(path: Path, further: dict):
    """The rows of a further table that are asked for, one per subject."""
    rows = read_table(path)
    wanted = further.get("rows", {})
    for column in (further["subject"], *further["columns"], *wanted):
        if column not in rows.columns:
            raise BrioError(f"{path} has no column {column!r}; correct source.tables")
    for column, values in wanted.items():
        rows = rows[rows[column].isin([str(value) for value in values])]
    twice = rows[further["subject"]][rows[further["subject"]].map(bare).duplicated()]
    if len(twice):
        raise BrioError(
            f"{path} has several rows for subject {twice.iloc[0]}; choose among them with 'rows' "
            "under source.tables, such as rows: {session: [baseline]}"
        )
    return rows


class Reader:
    """Reads a folder of scans and the table that describes them.

    A kind of source defines :meth:`scan_paths` and :meth:`read`; the rest is for those whose files
    tell more, or whose table is not the user's own.

    Parameters
    ----------
    dataset : dict
        The mapping of the dataset's YAML file; its section ``source`` is :attr:`source`.
    data_dir : path
        Where all cohorts lie; the cohort's own folder below it is ``source.folder``.
    """

    participants = "participants.tsv"
    """The table of subjects, unless ``source.participants`` names another."""

    def __init__(self, dataset: dict, data_dir: str | Path):
        self.dataset = dataset
        self.source = dataset["source"]
        self.data_dir = Path(data_dir)
        self.root = self.inside(self.data_dir, self.source["folder"], "source.folder")
        self._listed: dict[Path, dict[str, str]] = {}

    @property
    def table_path(self) -> Path:
        """The table with one row per candidate subject."""
        name = self.source.get("participants", self.participants)
        return self.need(self.inside(self.root, name, "source.participants"))

    def table(self):
        """The rows of :attr:`table_path` as text, one per candidate subject.

        ``source.tables`` names columns of further tables; who has no row there has ``n/a``.
        """
        table, subject = read_table(self.table_path), self.dataset["columns"].get("subject")
        for further in self.source.get("tables", ()):
            path = self.need(self.inside(self.root, further["file"], "source.tables"))
            rows = _rows(path, further)
            if subject not in table.columns:
                return table
            for column in further["columns"]:
                if column in table.columns:
                    raise BrioError(
                        f"column {column!r} is in {path} and in the table of subjects; leave it "
                        "out of source.tables, or rename one of them"
                    )
                values = dict(zip(rows[further["subject"]].map(bare), rows[column]))
                table[column] = [values.get(bare(name), MISSING) for name in table[subject]]
        return table

    def scan_paths(self, row: dict) -> list[Path]:
        """The file of one row of :meth:`table`, or the runs that are joined to its scan.

        Raises :class:`Unusable` if there can be none.
        """
        raise NotImplementedError

    def read(self, path: Path, tr: float | None) -> Scan:
        """Read and clean one scan; raises :class:`Unusable` if that is impossible."""
        raise NotImplementedError

    def scan_files(self) -> Iterable[tuple[str, Path]]:
        """The subject and a file of every scan that lies in the folder, in the table or not."""
        return ()

    def beside(self, path: Path) -> str:
        """A file that differs from a missing one in its ending only, or an empty text."""
        if path.parent not in self._listed:
            files = sorted(path.parent.iterdir()) if path.parent.is_dir() else []
            self._listed[path.parent] = {_stem(one): one.name for one in reversed(files)}
        return self._listed[path.parent].get(_stem(path), "")

    def check(self) -> None:
        """Raise if something that all scans need is wrong."""
        _ = self.regions, self._known_places

    def mean_fd(self, path: Path) -> float | None:
        """Mean framewise displacement in mm, where the scan's own files tell."""
        return None

    def repetition_time(self, path: Path) -> float | None:
        """Seconds between frames, where the scan's own files tell."""
        return None

    @property
    def units(self) -> str:
        """The units of the series."""
        return "as in the files of the source"

    def provenance(self) -> dict:
        """What the series depend on beside the dataset's YAML."""
        return {} if self.atlas is None else {"atlas_sha256": self.atlas.checksum}

    def read_runs(self, paths: list[Path], tr: float | None) -> Scan:
        """The joined runs of a scan; unusable ones are left out as long as one is left."""
        if len(paths) == 1:
            return self.read(paths[0], tr)
        scans, problems = [], []
        for path in paths:
            try:
                scans.append(self.read(path, tr))
            except Unusable as unusable:
                problems.append(unusable)
        if not scans:
            raise problems[0]
        if any(scan.series.shape[1] != scans[0].series.shape[1] for scan in scans):
            raise Unusable("runs do not fit together: they have different numbers of ROIs")
        left_out = f"; left out: {'; '.join(map(str, problems))}" if problems else ""
        return join_runs(scans, f"{len(scans)} of {len(paths)} runs joined{left_out}")

    @property
    def atlas_image(self) -> tuple[dict, str] | None:
        """Which atlas image the dataset names, if any, and the key that names it."""
        rois = self.dataset["rois"]
        if "atlas" in rois:
            if "image" in rois or "labels" in rois:
                raise BrioError(
                    f"rois of cohort {self.dataset['cohort']} has an atlas that is fetched beside "
                    "an image or labels; keep one of them"
                )
            return rois["atlas"], "rois.atlas"
        return (rois, "rois") if "image" in rois else None

    @cached_property
    def atlas(self):
        """The image of :attr:`atlas_image`, with its names."""
        if self.atlas_image is None:
            return None
        from brio_core.cohorts.atlases.atlas import fetch_atlas, read_atlas

        (named, key), expected = self.atlas_image, self.dataset["rois"]["expected"]
        if "fetch" in named:
            return fetch_atlas(named, self.data_dir / "atlases", expected, key)
        image = self._atlas_file(named["image"], f"{key}.image")
        table = next((name for name in ("names", "labels") if name in named), None)
        names = table and self._atlas_file(named[table], f"{key}.{table}")
        return read_atlas(image, names, expected)

    def _atlas_file(self, name: str, key: str) -> Path:
        path = self.inside(self.root, name, key)
        if not path.is_file():
            raise BrioError(
                f"{path} does not exist, which {key} of cohort {self.dataset['cohort']} names; put "
                "the file of the atlas there, or correct the key"
            )
        return path

    @cached_property
    def regions(self) -> Regions | None:
        """What the dataset tells about the regions beside their number."""
        rois = self.dataset["rois"]
        if self.atlas is not None:
            return self.atlas.regions
        if "labels" not in rois:
            return None
        found = read_labels(self._atlas_file(rois["labels"], "rois.labels"))
        if len(found.rois) != rois["expected"]:
            raise BrioError(
                f"{found.path} names {len(found.rois)} regions, but rois.expected is "
                f"{rois['expected']}; choose the labels of the atlas that the series were made with"
            )
        return found

    @cached_property
    def _known_places(self) -> tuple | None:
        """Hemispheres and centroids of the atlas that ``rois.hemispheres`` names, if any."""
        rois = self.dataset["rois"]
        if "hemispheres" not in rois:
            return None
        known, centroids = known_places(rois["hemispheres"])
        if len(known) != rois["expected"]:
            raise BrioError(
                f"rois.hemispheres is {rois['hemispheres']!r}, an atlas of {len(known)} regions, "
                f"but rois.expected is {rois['expected']}; correct one of them"
            )
        return known, centroids

    def rois(self, names: tuple[str, ...]) -> Rois:
        """The regions of the series, given the names that the scans themselves carry."""
        if self.regions is None:
            expected = self.dataset["rois"]["expected"]
            rois = Rois.named(names or [f"ROI {index + 1}" for index in range(expected)])
        else:
            rois = self.regions.of_series(names)
        if self._known_places and not {"L", "R"} & set(rois.hemispheres):
            known, centroids = self._known_places
            return replace(rois, hemispheres=known, centroids=centroids)
        return rois

    def need(self, path: Path) -> Path:
        """``path`` if it exists, else an error that says how to get the cohort's data."""
        if not path.exists():
            raise self.missing(f"{path} does not exist")
        return path

    def missing(self, what: str) -> BrioError:
        """The error for a cohort whose data are not there."""
        advice = self.dataset.get("how_to_get", "see config/README.md").strip()
        return BrioError(
            f"the data of cohort {self.dataset['cohort']} are missing: {what}; {advice}"
        )

    def file_name_part(self, value: str, role: str) -> str:
        """``value`` if it can be part of the name of a file, and of nothing but a name."""
        if value in (".", "..") or set(value) & set("/\\;\0"):
            raise BrioError(
                f"{self.table_path} has the {role} {value!r}, which cannot be part of a file "
                "name; use letters, digits, '-' and '_'"
            )
        return value

    def inside(self, folder: Path, relative: str, origin: str) -> Path:
        """``folder / relative``, refusing paths that lead out of the folder.

        The test is on the text and not on resolved links, because data folders are often links.
        """
        path = os.path.normpath(relative)
        if os.path.isabs(path) or path.split(os.sep)[0] == os.pardir:
            raise BrioError(
                f"{origin} of cohort {self.dataset['cohort']} leads to {relative!r}, outside "
                f"{folder}; use a path relative to that folder"
            )
        return folder / path
